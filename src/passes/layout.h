// SPDX-License-Identifier: Apache-2.0
// Layout assignment: convolutions run in the layout their kernels like, and so does everything around them
// that has a kernel for it; `layout` nodes convert where regions meet. Decided node by node by asking the
// oracle.
#pragma once

#include <vector>

#include "passes/pass.h"

namespace pelton::passes {

// `wanted`: channels_last, or blocked with the block that the target's vectors hold; plain changes nothing.
// `by_anchor`, unless it is empty, says it for each convolution in the graph's order instead; what lies
// between two of them takes the layout that reaches it first.
bool layout(ir::Graph& graph, const Context& context,
            ir::Layout wanted = {ir::Layout::Kind::channels_last, 0},
            const std::vector<ir::Layout>& by_anchor = {});

// The convolutions that `by_anchor` lists.
size_t count_layout_anchors(const ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
