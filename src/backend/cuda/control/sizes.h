// SPDX-License-Identifier: Apache-2.0
// Sub-graphs whose sizes are known when a kernel is prepared: those made of the symbols that the operands of
// the node around them have.
#pragma once

#include <set>
#include <string>

#include "ir/graph.h"

namespace pelton::backend::cuda {

using Symbols = std::set<std::string>;

// Of the node's operands: they have values in each run.
Symbols symbols_of_operands(const ir::Graph& graph, ir::NodeId node);
bool known(const Shape& shape, const Symbols& symbols);

// A copy with these sizes in types and attributes, those of graphs inside among them. bad_shape if a size
// cannot be.
ir::GraphPtr at_sizes(const ir::Graph& graph, const SymbolValues& sizes);

}  // namespace pelton::backend::cuda
