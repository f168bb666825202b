// SPDX-License-Identifier: Apache-2.0
// One launch for what a training step does alike to each parameter: groups and nodes that compute the next
// values of state, or sums over whole tensors (norms), become segments of one node each (ir/segments.h).
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

// The operands of all segments live until the last of them is there. Where memory binds, updates that follow
// their gradients one by one take less, so this pass is then left out.
bool merge_updates(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
