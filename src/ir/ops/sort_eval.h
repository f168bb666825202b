// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/eval.h"

namespace pelton::ir {

void eval_topk(EvalContext& c);
void eval_sort(EvalContext& c);

}  // namespace pelton::ir
