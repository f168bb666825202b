// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/eval.h"

namespace pelton::ir {

void eval_max_pool(EvalContext& c);
void eval_avg_pool(EvalContext& c);
void eval_lp_pool(EvalContext& c);
void eval_max_unpool(EvalContext& c);

}  // namespace pelton::ir
