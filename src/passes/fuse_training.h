// SPDX-License-Identifier: Apache-2.0
// Groups around what a training step consists of, made before the general fusion and only where the target
// takes them:
//   kind "cross_entropy": the loss, or its gradient, with casts of logits and of their gradient
//   kind "conv": the gradient of weights with the cast that follows
//   kind "batch_norm": batch norm in training with what is added to its result and an activation
//   kind "norm_backward": the gradient of a norm of rows with the sum that it is added to
//   kinds "attention_backward" and "attention": with the views of operands and results
//   kind "batch_norm_backward": its gradient behind that of an activation, whose operand is computed again
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool fuse_training(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
