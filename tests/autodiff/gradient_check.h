// SPDX-License-Identifier: Apache-2.0
// Gradients against central differences, in f64 on the interpreter. A case is a function of some inputs; its
// loss is the sum of its float results with fixed weights, the loss of the next order that of the gradients.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/builder.h"

namespace pelton::test {

using Values = std::vector<ir::ValueId>;

struct GradientCase {
  std::string name;
  std::vector<Dims> shapes;  // of the f64 inputs
  std::function<Values(ir::Builder&, const Values&)> build;
  double low = -2, high = 2;  // inputs are uniform between
  int order = 2;
  double tolerance = 2e-6;  // relative to the largest element of a gradient, at least 1
};

void check_gradient(const GradientCase& c);

}  // namespace pelton::test
