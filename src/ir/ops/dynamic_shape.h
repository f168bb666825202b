// SPDX-License-Identifier: Apache-2.0
// Rules of the data-dependent movement ops that others need too: the importer to emit the static form when it
// can, passes to replace the dynamic form once sizes are known.
#pragma once

#include "ir/eval.h"
#include "ir/infer.h"

namespace pelton::ir {

struct SliceDims {
  Dim start, size;  // start in [0, size of the axis) unless the result is empty
};
// The slice [start, end) by `step` of an axis of `extent`, negative bounds counting from the end and all
// bounds clamped. None when a bound's sign cannot be told.
std::optional<SliceDims> normal_slice(const Dim& start, const Dim& end, int64_t step, const Dim& extent,
                                      const SymbolRanges& ranges);

// Target of a reshape of `from`: -1 is what is left, 0 copies the input's size unless `allow_zero`. None when
// an entry's sign cannot be told.
std::optional<Shape> reshape_target(const Shape& from, const Contents& to, bool allow_zero,
                                    const SymbolRanges& ranges);

void eval_dynamic_reshape(EvalContext& c);
void eval_dynamic_broadcast(EvalContext& c);
void eval_dynamic_slice(EvalContext& c);
void eval_dynamic_pad(EvalContext& c);
void eval_dynamic_tile(EvalContext& c);
void eval_dynamic_fill(EvalContext& c);
void eval_range(EvalContext& c);

}  // namespace pelton::ir
