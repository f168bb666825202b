// SPDX-License-Identifier: Apache-2.0
// Reverse-mode differentiation of graphs, from the gradient column of the op table. An op without a rule is
// differentiated through its decomposition. The nodes added are ordinary nodes: differentiating them again
// gives higher orders.
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"

namespace pelton::autodiff {

struct GradientOptions {
  ir::ValueId seed;               // gradient of `loss`, of its type and shape; none: 1
  std::vector<ir::ValueId> stop;  // taken as constants: nothing flows back through them
};

// Appends nodes that compute d(loss)/d(wrt) and returns these values, one for each of `wrt` and of its type;
// zeros where the loss does not depend on it. `loss` has a float type and, without a seed, one element. Nodes
// on the way may gain optional results (statistics that the backward pass reads). unsupported_op names an op
// on the way that cannot be differentiated, its node and the path from the loss.
std::vector<ir::ValueId> gradient(ir::Graph& graph, ir::ValueId loss, std::span<const ir::ValueId> wrt,
                                  const GradientOptions& options = {});

}  // namespace pelton::autodiff
