// SPDX-License-Identifier: Apache-2.0
// One matrix where a model holds it twice: a product whose constant right operand is another constant
// transposed (exporters write an embedding a second time for the last layer that is tied to it) reads the
// other one, transposed. What stays keeps the names of both: its own, and those that went in its attribute
// `transposed_names`, by which new weights find it too (weight_names.h).
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool tie(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
