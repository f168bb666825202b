// SPDX-License-Identifier: Apache-2.0
// Lower forms of parameters as state, for training steps on devices.
#pragma once

#include "ir/graph.h"

namespace pelton::passes {

// A parameter that is cast to a lower type gets a state slot "low.NAME" of kind cache that holds the cast, so
// that the update which writes the parameter writes it in the same pass. Whoever sets the parameter sets it
// as well.
bool keep_low_copies(ir::Graph& graph);

}  // namespace pelton::passes
