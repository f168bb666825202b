// SPDX-License-Identifier: Apache-2.0
// Splits composites that no implementation of the target keeps whole into their primitives, so that fusion
// sees them.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool decompose(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
