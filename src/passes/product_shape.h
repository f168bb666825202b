// SPDX-License-Identifier: Apache-2.0
// A product between reshapes that only merge and split its rows works on the shape outside of them, so that
// what follows (a residual, an activation) has the product's own shape and can be fused with it. For devices.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool product_shape(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
