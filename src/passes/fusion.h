// SPDX-License-Identifier: Apache-2.0
// Fusion: epilogues of convolutions and products, then groups of pointwise ops, alone or in front of a
// reduction. A group is kept only if an implementation takes it whole.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool fusion(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
