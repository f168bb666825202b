// SPDX-License-Identifier: Apache-2.0
// The sweep behind autodiff.h: any number of results with given gradients.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace pelton::autodiff {

// A value and the gradient that it has already.
struct Seed {
  ir::ValueId value, gradient;
};

// Gradients of `wrt`, none where nothing flows. Looks at the nodes of the graph from place `first` of its
// order on. Errors about a node name its path from `seeds`.
std::vector<ir::ValueId> reverse(ir::Graph& graph, std::span<const Seed> seeds,
                                 std::span<const ir::ValueId> wrt, std::span<const ir::ValueId> stop,
                                 size_t first = 0);

// Whether values of the type can have a gradient.
bool differentiable(const ir::Type& type);

}  // namespace pelton::autodiff
