// SPDX-License-Identifier: Apache-2.0
// What a group of kind "product_gradient" (passes/fuse_products.h) holds, read off its body.
#pragma once

#include <optional>
#include <string>

#include "backend/kernel.h"
#include "ir/activation_gradient.h"

namespace pelton::backend::cuda {

struct ProductGradient {
  std::string reason;  // not empty: it holds something else
  const ir::Graph* body = nullptr;
  ir::NodeId product;
  size_t a = 0, b = 0;  // inputs of the node: operands of the product
  // Either the gradient of an activation, whose operand (or, of a ReLU, result) is input `x`, ...
  std::optional<ir::ActivationGradient::Kind> gate;
  size_t x = 0;
  // ... or the sum over rows of an operand.
  bool sums_a = false;
  size_t product_output = 0, sum_output = 0;  // outputs of the node
};
ProductGradient product_gradient_of(const ir::Graph& graph, ir::NodeId node);

}  // namespace pelton::backend::cuda
