// SPDX-License-Identifier: Apache-2.0
// Layout assignment: convolutions run in the layout their kernels like, and so does everything around them
// that has a kernel for it; `layout` nodes convert where regions meet. Decided node by node by asking the
// oracle.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

// `wanted`: channels_last, or blocked with the block that the target's vectors hold; plain changes nothing.
bool layout(ir::Graph& graph, const Context& context,
            ir::Layout wanted = {ir::Layout::Kind::channels_last, 0});

}  // namespace pelton::passes
