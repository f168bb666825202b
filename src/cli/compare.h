// SPDX-License-Identifier: Apache-2.0
// Comparison of tensors within tolerances.
#pragma once

#include <string>

#include "tensor/tensor.h"

namespace pelton::cli {

struct Difference {
  double max_abs = 0, max_rel = 0;
  int64_t wrong = 0;   // elements outside the tolerance
  std::string reason;  // empty: equal within the tolerance
  bool matches() const { return reason.empty(); }
};

// |got - expected| <= atol + rtol * |expected|; NaN equals NaN, infinities must agree. Other types exactly
// where they are not floats.
Difference compare(const Tensor& got, const Tensor& expected, double rtol, double atol);

}  // namespace pelton::cli
