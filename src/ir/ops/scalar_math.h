// SPDX-License-Identifier: Apache-2.0
// Functions of one number that several families evaluate, in f64 and without overflow.
#pragma once

#include <algorithm>
#include <cmath>

namespace pelton::ir {

inline double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
inline double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

}  // namespace pelton::ir
