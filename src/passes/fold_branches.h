// SPDX-License-Identifier: Apache-2.0
// Branches that are trained apart and summed (RepVGG, MobileOne, FastViT): convolutions of one tensor with
// windows of different sizes, and a batch norm of it, are one convolution whose weights are the sum.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

// A rule for `add`; part of fold_norm.
bool branches_into_conv(ir::Graph& graph, ir::NodeId id, const Context& context);

}  // namespace pelton::passes
