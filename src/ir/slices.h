// SPDX-License-Identifier: Apache-2.0
// Whether slices stay inside of their operands, which for open sizes only a run tells.
#pragma once

#include "ir/graph.h"

namespace pelton::ir {

// bad_shape where the node is a slice, or a fused group with one, that reads outside of its operand at these
// sizes. To be asked before a kernel is prepared: kernels do not look.
void require_slices(const Graph& graph, NodeId node, const SymbolValues& sizes);

}  // namespace pelton::ir
