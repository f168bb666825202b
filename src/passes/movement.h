// SPDX-License-Identifier: Apache-2.0
// Movement ops: removes, merges and sinks reshape, transpose, broadcast, slice, concat, pad and the
// reductions and gathers that are movement in disguise. Every rewrite keeps the value bit for bit.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool movement(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
