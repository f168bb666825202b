// SPDX-License-Identifier: Apache-2.0
// Reasons to refuse a node that implementations of several back ends share.
#pragma once

#include <string>

#include "ir/graph.h"

namespace pelton::backend {

// "" if every tensor of the node has a known rank, the plain layout and elements of whole bytes, else the
// reason.
std::string refuse_layouts(const ir::Graph& graph, ir::NodeId node);

}  // namespace pelton::backend
