// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/eval.h"

namespace pelton::ir {

void eval_seq_make(EvalContext& c);
void eval_seq_empty(EvalContext& c);
void eval_seq_insert(EvalContext& c);
void eval_seq_erase(EvalContext& c);
void eval_seq_at(EvalContext& c);
void eval_seq_length(EvalContext& c);
void eval_seq_concat(EvalContext& c);
void eval_seq_split(EvalContext& c);
void eval_opt_make(EvalContext& c);
void eval_opt_has(EvalContext& c);
void eval_opt_get(EvalContext& c);

}  // namespace pelton::ir
