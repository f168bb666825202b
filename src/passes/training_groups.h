// SPDX-License-Identifier: Apache-2.0
// Groups of a training step, for the files that find them: made if the target takes them, else undone.
#pragma once

#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "passes/pass.h"

namespace pelton::passes {

// Makes a group of the nodes if the target takes it. If not, the nodes are new ones that stand for the old.
bool try_group(ir::Graph& g, const std::vector<ir::NodeId>& nodes, const char* kind, const Context& context);
// The node of that op with the stable id; none if it is gone.
ir::NodeId find_node(const ir::Graph& g, uint64_t stable_id, std::string_view op);
// Like try_group, around one node; if the target does not take it, the node reads `inputs` again.
bool group_or_restore(ir::Graph& g, const std::vector<ir::NodeId>& nodes, ir::NodeId id,
                      const std::vector<ir::ValueId>& inputs, const char* kind, const Context& context);

bool fuse_norm(ir::Graph& g, ir::NodeId id, const Context& context);
bool fuse_norm_backward(ir::Graph& g, ir::NodeId id, const Context& context);
bool fuse_attention(ir::Graph& g, ir::NodeId id, const Context& context);

}  // namespace pelton::passes
