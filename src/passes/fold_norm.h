// SPDX-License-Identifier: Apache-2.0
// Frozen scale and shift move into the weights of the convolution or product in front of them: batch norm,
// and multiplications and additions by per-channel constants; branches become one (fold_branches.h). For
// inference compilations only.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool fold_norm(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
