// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/exact_row.h"

namespace pelton::ir {

OpDef exact_row(Family family, std::string_view name, int min_inputs, int max_inputs,
                std::vector<AttrDef> attrs, void (*infer)(InferContext&), void (*eval)(EvalContext&),
                std::vector<std::string_view> constraints) {
  OpDef row;
  row.name = name;
  row.family = family;
  row.min_inputs = min_inputs;
  row.max_inputs = max_inputs;
  row.attrs = std::move(attrs);
  row.constraints = std::move(constraints);
  row.infer = infer;
  row.eval = eval;
  row.precision = Precision::exact;
  return row;
}

}  // namespace pelton::ir
