// SPDX-License-Identifier: Apache-2.0
// The row that most movement, indexing, sequence and text ops have.
#pragma once

#include "ir/op.h"

namespace pelton::ir {

// The row of an op that moves or selects elements and rounds none.
OpDef exact_row(Family family, std::string_view name, int min_inputs, int max_inputs,
                std::vector<AttrDef> attrs, void (*infer)(InferContext&), void (*eval)(EvalContext&),
                std::vector<std::string_view> constraints = {});

}  // namespace pelton::ir
