// SPDX-License-Identifier: Apache-2.0
// Normalisations, letters as in the README of this folder. Statistics are [N..., 1...] or [C] or [N, groups]
// in f32 (f64 for f64). Inputs of f16 and bf16 are widened to f32 by the decompositions.
#pragma once

#include "ir/builder.h"
#include "ir/eval.h"

namespace pelton::ir {

void eval_softmax(EvalContext& c);
void eval_log_softmax(EvalContext& c);
void eval_layer_norm(EvalContext& c);
void eval_rms_norm(EvalContext& c);
void eval_batch_norm(EvalContext& c);
void eval_batch_norm_train(EvalContext& c);
void eval_group_norm(EvalContext& c);
void eval_lrn(EvalContext& c);
void eval_lp_norm(EvalContext& c);

std::vector<ValueId> decompose_softmax(Builder& b, const Node& n);
std::vector<ValueId> decompose_log_softmax(Builder& b, const Node& n);
std::vector<ValueId> decompose_layer_norm(Builder& b, const Node& n);
std::vector<ValueId> decompose_rms_norm(Builder& b, const Node& n);
std::vector<ValueId> decompose_batch_norm(Builder& b, const Node& n);
std::vector<ValueId> decompose_batch_norm_train(Builder& b, const Node& n);
std::vector<ValueId> decompose_group_norm(Builder& b, const Node& n);
std::vector<ValueId> decompose_lrn(Builder& b, const Node& n);
std::vector<ValueId> decompose_lp_norm(Builder& b, const Node& n);

}  // namespace pelton::ir
