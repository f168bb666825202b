// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/eval.h"

namespace pelton::ir {

void eval_roi_align(EvalContext& c);
void eval_max_roi_pool(EvalContext& c);
void eval_nms(EvalContext& c);

}  // namespace pelton::ir
