// SPDX-License-Identifier: Apache-2.0
// The few functions of nvJPEG in use, opened at their first use. They are declared here by their published
// names and numbers: the library's header is no part of every toolkit's installation.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace pelton::backend::cuda {

enum class NvjpegBackend : int { gpu_hybrid = 2, hardware = 3 };
inline constexpr int kNvjpegGrey = 2, kNvjpegRgb = 5;  // outputs: Y; interleaved RGB
// Damage that is seen is refused; chroma is interpolated between its samples, as libjpeg-turbo does.
inline constexpr unsigned kNvjpegStrict = 1u << 2, kNvjpegInterpolate = 1u << 5;

using NvjpegHandle = struct NvjpegHandleTag*;
using NvjpegState = struct NvjpegStateTag*;
using NvjpegStream = struct NvjpegStreamTag*;
struct NvjpegImage {
  unsigned char* channel[4];
  size_t pitch[4];
};

// All return 0 for success.
struct NvjpegTable {
  int (*create)(NvjpegBackend, void* device_allocator, void* pinned_allocator, unsigned flags, NvjpegHandle*);
  int (*destroy)(NvjpegHandle);
  int (*hardware)(NvjpegHandle, unsigned* engines, unsigned* cores_per_engine);
  int (*state_create)(NvjpegHandle, NvjpegState*);
  int (*state_destroy)(NvjpegState);
  int (*stream_create)(NvjpegHandle, NvjpegStream*);
  int (*stream_destroy)(NvjpegStream);
  int (*stream_parse_header)(NvjpegHandle, const unsigned char*, size_t, NvjpegStream);
  int (*stream_size)(NvjpegStream, unsigned* width, unsigned* height);
  int (*stream_components)(NvjpegStream, unsigned*);
  int (*batch_supported)(NvjpegHandle, NvjpegStream, int* zero_if_so);
  int (*batch_initialize)(NvjpegHandle, NvjpegState, int count, int threads, int format);
  int (*batch_decode)(NvjpegHandle, NvjpegState, const unsigned char* const*, const size_t*, NvjpegImage*,
                      cudaStream_t);
};
// Any thread; a no_device error says what is missing.
const NvjpegTable& nvjpeg();

}  // namespace pelton::backend::cuda
