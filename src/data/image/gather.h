// SPDX-License-Identifier: Apache-2.0
// The general resample: each output pixel reads the input at a position given by a 3x3 matrix.
#pragma once

#include "data/image/lazy_image.h"

namespace pelton::data {

// u8 [h, w, c] -> u8 [warp.height, warp.width, c]. An output pixel whose centre falls outside the input is
// fill; inside, taps beyond the border repeat the edge.
Tensor gather_pixels(const Tensor& pixels, const Warp& warp, std::array<uint8_t, 3> fill);

}  // namespace pelton::data
