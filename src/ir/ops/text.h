// SPDX-License-Identifier: Apache-2.0
// Ops on strings and labels. They run on the reference path only.
#pragma once

#include "ir/eval.h"

namespace pelton::ir {

void eval_string_concat(EvalContext& c);
void eval_string_split(EvalContext& c);
void eval_string_normalizer(EvalContext& c);
void eval_regex_full_match(EvalContext& c);
void eval_tfidf(EvalContext& c);
void eval_label_encoder(EvalContext& c);

}  // namespace pelton::ir
