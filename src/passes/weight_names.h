// SPDX-License-Identifier: Apache-2.0
// The names by which new values find a constant after compilation (runtime/refit.h): its value's name, those
// of weights that it is a copy of (same_names) and of matrices that it is the transpose of
// (transposed_names).
#pragma once

#include "ir/graph.h"

namespace pelton::passes {

// Constant `to`, made of constant `from`, takes new values for it too.
void add_names(ir::Graph& graph, ir::ValueId from, ir::ValueId to, bool transposed);
// No constant takes new values by the names of this one any more: something was made of it that would keep
// the old ones.
void forget_names(ir::Graph& graph, ir::ValueId constant);

}  // namespace pelton::passes
