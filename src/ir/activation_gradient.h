// SPDX-License-Identifier: Apache-2.0
// Finds what the gradient rule of an activation has become in a graph: ops of the table, which passes have
// given casts. The rule itself is what is compared with, so that the two cannot part.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace pelton::ir {

struct ActivationGradient {
  enum Kind : uint8_t { relu, gelu_tanh } kind = relu;
  // The gradient of the activation's result, and what the activation read: of a ReLU perhaps its result,
  // which is positive where that is. Behind casts to wider floats.
  ValueId gradient, x;
  std::vector<NodeId> nodes;  // between these and v, casts included, constants not
};
// Whether v = gradient * f'(x), or (ReLU) gradient where x > 0, else 0.
std::optional<ActivationGradient> activation_gradient(const Graph& graph, ValueId v);

}  // namespace pelton::ir
