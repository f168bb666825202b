// SPDX-License-Identifier: Apache-2.0
// What the compilations of row_norm.cc for several instruction sets share.
#pragma once

#include <cstdint>

namespace pelton::backend::cpu {

struct RowNorm {
  int64_t n = 0;  // elements of a row
  double eps = 0;
  bool centred = false;  // layer_norm; else rms_norm
};
// x and y [rows, n]; scale and bias [n] or null
using RowNormFunction = void (*)(const RowNorm& norm, const float* x, const float* scale, const float* bias,
                                 float* y, int64_t rows);

}  // namespace pelton::backend::cpu
