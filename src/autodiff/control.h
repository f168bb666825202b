// SPDX-License-Identifier: Apache-2.0
// Gradients of control flow, whose rules differentiate sub-graphs.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace pelton::autodiff {

// Gradients of the inputs of an `if`, `loop` or `scan` node, none where nothing flows; nothing for other ops.
// The forward node may gain results: the values that its iterations carry.
std::optional<std::vector<ir::ValueId>> differentiate_control(ir::Graph& graph, ir::NodeId node,
                                                              const std::vector<ir::ValueId>& result_grads,
                                                              const std::vector<bool>& wanted);

}  // namespace pelton::autodiff
