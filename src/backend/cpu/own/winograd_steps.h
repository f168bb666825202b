// SPDX-License-Identifier: Apache-2.0
// The inner loops of 3x3 convolutions by Winograd's F(2x2, 3x3): 16 products instead of 36 make a tile of 2x2
// results from 4x4 pixels. Channels lie innermost everywhere.
#pragma once

#include <cstdint>

#include "device/target.h"

namespace pelton::backend::cpu {

inline constexpr int kWinogradPoints = 16;  // of a transformed tile

struct WinogradSteps {
  int64_t columns = 0;  // output channels that one panel of weights holds
  int64_t rows = 0;     // tiles that one product holds in registers
  // weights: w[16 outputs][channels][9] (strides in floats: output, channel) -> point p, channel c, output o
  // at u[p * point_stride + c * columns + o]. `outputs` may be fewer: the rest of the 16 becomes 0.
  void (*weights)(const float* w, int64_t output_stride, int64_t channels, int64_t outputs, float* u,
                  int64_t point_stride, int64_t columns) = nullptr;
  // 4x4 pixels of `channels` each, row by row -> v[p * point_stride + c].
  void (*input)(const float* const* pixels, int64_t channels, float* v, int64_t point_stride) = nullptr;
  // out[rows, columns] = a[rows, k] panel[k, columns]; sums run over k in order.
  void (*product)(int64_t rows, int64_t k, const float* a, int64_t lda, const float* panel,
                  float* out) = nullptr;
  // m[p * point_stride + o] -> up to four pixels (null: outside the image) of `outputs` channels, each the
  // sum of the transform and `bias`, at least `low`. False if one of them was not finite: differences of
  // infinities are NaN where the plain sum is infinite or does not even see the pixel.
  bool (*output)(const float* m, int64_t point_stride, int64_t outputs, const float* bias, float low,
                 float* const* pixels) = nullptr;
};

WinogradSteps winograd_steps(device::CpuIsa isa);

}  // namespace pelton::backend::cpu
