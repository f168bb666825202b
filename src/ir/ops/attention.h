// SPDX-License-Identifier: Apache-2.0
// Attention and rotary embedding. N batch, H query heads, G key heads (H a multiple of G), L queries, M keys,
// D and E head sizes.
#pragma once

#include "ir/builder.h"
#include "ir/eval.h"

namespace pelton::ir {

void eval_attention(EvalContext& c);
void eval_rotary(EvalContext& c);
std::vector<ValueId> decompose_attention(Builder& b, const Node& n);
std::vector<ValueId> decompose_rotary(Builder& b, const Node& n);

}  // namespace pelton::ir
