// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/eval.h"

namespace pelton::ir {

void eval_max_pool_backward(EvalContext& c);
void eval_avg_pool_backward(EvalContext& c);

}  // namespace pelton::ir
