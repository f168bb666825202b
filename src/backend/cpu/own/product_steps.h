// SPDX-License-Identifier: Apache-2.0
// The inner loops of f32 matrix products: a strip of Y [M, N] += A [M, K] B [K, N] in registers, for one
// block of K. The sum of an element runs over k in order whatever the strip, so that its bits depend on K
// alone.
#pragma once

#include <cstdint>
#include <limits>

#include "device/target.h"

namespace pelton::backend::cpu {

// Strides in floats. Panel p holds B's columns from p * columns on (ProductSteps): its first row begins at
// b + p * b_panel.
struct Strip {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t a_row = 0, a_step = 1;
  const float* b = nullptr;
  int64_t b_row = 0, b_panel = 0;
  float* y = nullptr;
  int64_t y_row = 0;
  bool add = false;                                     // to what y holds
  const float* bias = nullptr;                          // [n], added last; null: none
  float low = -std::numeric_limits<float>::infinity();  // the least that y becomes
};

struct ProductSteps {
  int64_t columns = 0;  // of a panel
  int64_t rows = 0;     // that are held in registers at once
  // The last panel is read to its full width, but for n no more than that many columns of y are touched.
  void (*multiply)(const Strip& strip) = nullptr;
  // b[i * row + j * step] -> panel[i * columns + j] for `count` columns j; zeros behind them.
  void (*pack)(const float* b, int64_t row, int64_t step, int64_t k, int64_t count, float* panel) = nullptr;
};

ProductSteps product_steps(device::CpuIsa isa);

}  // namespace pelton::backend::cpu
