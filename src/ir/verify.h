// SPDX-License-Identifier: Apache-2.0
// Checks every rule of the IR that types alone do not: handles, order, single assignment, arity, attributes,
// inferred types, state slots, must-alias pairs, tokens, sub-graphs.
#pragma once

#include <string_view>

#include "ir/graph.h"

namespace pelton::ir {

// Throws on the first broken rule; `stage` says what ran last ("import", "pass fusion").
void verify(const Graph& graph, std::string_view stage = {});

}  // namespace pelton::ir
