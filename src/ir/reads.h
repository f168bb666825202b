// SPDX-License-Identifier: Apache-2.0
// Whether slices stay inside of their operands and windows fit into theirs, which for open sizes only a run
// tells.
#pragma once

#include "ir/graph.h"

namespace pelton::ir {

// bad_shape where the node is a slice that reads outside of its operand at these sizes, a convolution or a
// pooling whose window is larger than its padded operand, or a fused group with one. To be asked before a
// kernel is prepared: kernels do not look.
void require_reads(const Graph& graph, NodeId node, const SymbolValues& sizes);

}  // namespace pelton::ir
