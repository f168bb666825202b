// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/eval.h"

namespace pelton::ir {

void eval_matmul(EvalContext& c);

}  // namespace pelton::ir
