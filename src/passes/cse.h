// SPDX-License-Identifier: Apache-2.0
// Common subexpressions: pure nodes with equal op, inputs and attributes become one. State slots are never
// merged.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool cse(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
