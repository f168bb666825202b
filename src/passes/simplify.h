// SPDX-License-Identifier: Apache-2.0
// Algebraic simplification: neutral elements, inverses, idempotents, arithmetic that constants allow, casts
// that lose nothing, control flow and sequences decided at compile time. Values are kept bit for bit, but for
// the sign of zero and the payload of NaN.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool simplify(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
