// SPDX-License-Identifier: Apache-2.0
// Sizes that an op takes as an operand. What is known of them is symbolic; the others become symbols that the
// run learns: a fill of so many elements, which nothing reads, tells them.
#pragma once

#include <string_view>

#include "onnx/import/node_context.h"

namespace pelton::onnx {

// The entries of integers `sizes` of rank 0 or 1. bad_shape, naming `what`, if their number is open.
Contents run_sizes(NodeContext& c, ValueId sizes, std::string_view what);

}  // namespace pelton::onnx
