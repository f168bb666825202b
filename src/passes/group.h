// SPDX-License-Identifier: Apache-2.0
// Making and unmaking `fused` nodes.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace pelton::passes {

// Replaces `members` (in order; every path between two of them inside) by one `fused` node at the place of
// the last one. Uniform constants move into the body, other outside values become inputs. Returns the node.
ir::NodeId make_group(ir::Graph& graph, const std::vector<ir::NodeId>& members, const std::string& kind);
// Puts the body back in its place; returns the nodes in order.
std::vector<ir::NodeId> dissolve_group(ir::Graph& graph, ir::NodeId fused);

}  // namespace pelton::passes
