// SPDX-License-Identifier: Apache-2.0
// Products of one value with several constant matrices (the Q, K and V of attention, gate and up of a gated
// layer) become one product with their columns side by side, whose result is sliced. For devices, where one
// large product takes little longer than one small one.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool siblings(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
