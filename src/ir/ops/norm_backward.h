// SPDX-License-Identifier: Apache-2.0
// Backward forms of the normalisations. Letters as in the README of this folder; g is the gradient of the
// result, mean and rstd are what the training form of the normalisation yields.
#pragma once

#include "ir/builder.h"
#include "ir/eval.h"

namespace pelton::ir {

void eval_layer_norm_backward(EvalContext& c);
void eval_rms_norm_backward(EvalContext& c);
void eval_batch_norm_backward(EvalContext& c);
void eval_group_norm_backward(EvalContext& c);

std::vector<ValueId> decompose_layer_norm_backward(Builder& b, const Node& n);
std::vector<ValueId> decompose_rms_norm_backward(Builder& b, const Node& n);
std::vector<ValueId> decompose_batch_norm_backward(Builder& b, const Node& n);
std::vector<ValueId> decompose_group_norm_backward(Builder& b, const Node& n);

}  // namespace pelton::ir
