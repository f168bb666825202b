// SPDX-License-Identifier: Apache-2.0
// Which nodes move no byte, given the layouts of their operand and result.
#pragma once

#include "ir/graph.h"

namespace pelton::ir {

// Whether the node's only result is, byte for byte, its first input: views, and changes of layout and
// transpositions that leave the axes (but for those of size 1) in one order in memory, as from a
// channels-last [N,C,H,W] to a plain [N,H,W,C].
bool keeps_bytes(const Graph& graph, NodeId node);

}  // namespace pelton::ir
