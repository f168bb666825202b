// SPDX-License-Identifier: Apache-2.0
// Colour changes as matrices and as functions on pixels, for stages and augmentation policies.
#pragma once

#include "data/image/lazy_image.h"

namespace pelton::data {

ColourMatrix brightness_matrix(double factor);
ColourMatrix contrast_matrix(double factor);    // about mid-grey, 127.5
ColourMatrix saturation_matrix(double factor);  // towards or away from the pixel's luma
ColourMatrix hue_matrix(double degrees);        // turns chroma, keeps luma
ColourMatrix invert_matrix();

// u8 [h, w, c] in, u8 [h, w, c] out.
Tensor posterized(const Tensor& pixels, int bits);
Tensor solarized(const Tensor& pixels, int threshold);
Tensor equalized(const Tensor& pixels);
Tensor autocontrasted(const Tensor& pixels);
Tensor blurred(const Tensor& pixels, double sigma);
Tensor sharpened(const Tensor& pixels, double factor);  // 0: smoothed, 1: as it is, 2: sharpened

}  // namespace pelton::data
