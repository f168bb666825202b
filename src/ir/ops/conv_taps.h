// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/eval.h"

namespace pelton::ir {

void eval_deform_conv(EvalContext& c);
void eval_im2col(EvalContext& c);
void eval_col2im(EvalContext& c);

}  // namespace pelton::ir
