// SPDX-License-Identifier: Apache-2.0
// For devices: what can be read in 16 bits is not stored in 32 as well. A sum reads the narrow copy that
// others read (the gradient of a bias beside those of a product), if the plan's precision is a lower one,
// since that rounds what it adds; the place of a maximum is the same in both; a cast stands in front of the
// reshape that follows it.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool narrow_reads(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
