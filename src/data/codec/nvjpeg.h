// SPDX-License-Identifier: Apache-2.0
// JPEG on an NVIDIA GPU through nvJPEG, which is opened when it is first asked for. Pixels come back to host
// memory; what the GPU's decoder does not take is left to the CPU's.
#pragma once

#include <optional>

#include "data/codec/jpeg.h"

namespace pelton::data {

// Empty when there is a GPU and the library; else what is missing.
std::string nvjpeg_lack();

// u8 [h, w, 1 or 3] as jpeg_decode gives it, but for the rounding of the inverse transform and of chroma
// between its samples. None: a coding that the GPU does not take, no memory left on it, or damage, which the
// CPU's decoder then names.
std::optional<Tensor> nvjpeg_decode(Bytes bytes, const JpegInfo& info, Colour colour);

// Of this process so far.
struct NvjpegCounts {
  int64_t decoded = 0, left_to_cpu = 0;
};
NvjpegCounts nvjpeg_counts();

}  // namespace pelton::data
