// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/eval.h"

namespace pelton::ir {

void eval_if(EvalContext& c);
void eval_loop(EvalContext& c);
void eval_scan(EvalContext& c);
void eval_fused(EvalContext& c);
void eval_token(EvalContext& c);
void eval_custom(EvalContext& c);

}  // namespace pelton::ir
