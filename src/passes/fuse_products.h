// SPDX-License-Identifier: Apache-2.0
// Groups of kind "product_gradient", made where the target takes them: what a library applies to a product of
// a step's backward half while it has the result or an operand at hand.
//   - a gradient of weights with the sum over rows of the operand that is the gradient of the layer's result:
//     the gradient of its bias
//   - a gradient of data with the gradient of the activation in front of the layer (ir/activation_gradient.h)
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool fuse_products(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
