// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/eval.h"

namespace pelton::ir {

void eval_pointwise(EvalContext& c);  // any op with a ScalarDef that has functions
void eval_pow(EvalContext& c);
void eval_select(EvalContext& c);

}  // namespace pelton::ir
