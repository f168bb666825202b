// SPDX-License-Identifier: Apache-2.0
// Constant folding: nodes whose results are known become constants, by the reference interpreter; integer
// values known symbolically become `contents` nodes; data-dependent shape ops whose operand is known become
// the plain form.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

// A result is not folded if it would be larger than `max_bytes` and larger than what it is made of.
bool fold(ir::Graph& graph, const Context& context, int64_t max_bytes = int64_t{1} << 20);

}  // namespace pelton::passes
