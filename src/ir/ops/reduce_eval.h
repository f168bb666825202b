// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/eval.h"

namespace pelton::ir {

void eval_reduce_sum(EvalContext& c);
void eval_reduce_mean(EvalContext& c);
void eval_reduce_max(EvalContext& c);
void eval_reduce_min(EvalContext& c);
void eval_reduce_prod(EvalContext& c);
void eval_arg_max(EvalContext& c);
void eval_arg_min(EvalContext& c);
void eval_cumsum(EvalContext& c);
void eval_cumprod(EvalContext& c);

}  // namespace pelton::ir
