// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/eval.h"

namespace pelton::ir {

void eval_conv(EvalContext& c);
void eval_conv_transpose(EvalContext& c);

}  // namespace pelton::ir
