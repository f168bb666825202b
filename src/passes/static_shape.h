// SPDX-License-Identifier: Apache-2.0
// Data-dependent shape ops whose operands turned out to be known become the plain ops with attributes.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool static_shape(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
