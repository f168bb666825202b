// SPDX-License-Identifier: Apache-2.0
// Updates of state on devices: what a step writes to one parameter, its optimizer state, its moving average
// and its lower form is one group that reads and writes each byte once, and stands behind the last reader of
// the old values, so that it can write over them.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool fuse_updates(ir::Graph& graph, const Context& context);
// Moves what makes next values of slots behind the last readers of the old ones.
bool order_updates(ir::Graph& graph);

}  // namespace pelton::passes
