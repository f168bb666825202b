// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/eval.h"

namespace pelton::ir {

void eval_gather(EvalContext& c);
void eval_gather_elements(EvalContext& c);
void eval_gather_nd(EvalContext& c);
void eval_scatter_elements(EvalContext& c);
void eval_scatter_nd(EvalContext& c);
void eval_one_hot(EvalContext& c);
void eval_non_zero(EvalContext& c);
void eval_compress(EvalContext& c);
void eval_unique(EvalContext& c);
void eval_reverse_sequence(EvalContext& c);
void eval_embedding_bag(EvalContext& c);
void eval_tensor_scatter(EvalContext& c);

}  // namespace pelton::ir
