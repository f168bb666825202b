// SPDX-License-Identifier: Apache-2.0
// Gradients of conv by its data and its weights. g[N,O,P...] is the gradient of the result; other letters as
// in conv.cc. Both are bilinear, and the three convolutions are one another's gradients, to any order.
#pragma once

#include "ir/builder.h"
#include "ir/eval.h"

namespace pelton::ir {

void eval_conv_backward_data(EvalContext& c);
void eval_conv_backward_weights(EvalContext& c);
// Nothing where a size is not fixed that must be.
std::vector<ValueId> decompose_conv_backward_data(Builder& b, const Node& n);
std::vector<ValueId> decompose_conv_backward_weights(Builder& b, const Node& n);

}  // namespace pelton::ir
