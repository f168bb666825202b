// SPDX-License-Identifier: Apache-2.0
// Where a node stands below the loss, for messages.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "autodiff/reverse.h"

namespace pelton::autodiff {

// "path from the loss: mul 'loss' <- add 'fc2/bias' <- custom 'x'": a shortest path over `nodes`, long ones
// cut in the middle.
std::string path_from_loss(const ir::Graph& graph, ir::NodeId node, std::span<const Seed> seeds,
                           std::span<const ir::NodeId> nodes);

}  // namespace pelton::autodiff
