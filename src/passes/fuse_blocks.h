// SPDX-License-Identifier: Apache-2.0
// Groups around known blocks that one kernel runs whole, made before the general fusion and only where the
// target takes them:
//   kind "squeeze_excite": x * act(conv1x1(act(conv1x1(mean of all places of x))))
//   kind "excite": a depthwise convolution with its activations, and the factors of that block
//   kind "attention": attention with the slices, reshapes and transposes of its operands and its result
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool fuse_squeeze_excite(ir::Graph& graph, const Context& context);  // "excite" where its product is a conv's
// The product with the factors of an "excite" group that this convolution alone reads; none if it reads no
// such.
ir::NodeId gate_of(const ir::Graph& graph, ir::NodeId conv);
bool fuse_attention_views(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
