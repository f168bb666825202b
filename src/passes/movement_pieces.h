// SPDX-License-Identifier: Apache-2.0
// Rules of the movement pass about pieces: concat, slice, gather of one, pad.
#pragma once

#include "ir/builder.h"
#include "passes/pass.h"

namespace pelton::passes {

bool concat_one(ir::Graph& g, ir::NodeId id, const Context& context);
bool concat_of_concat(ir::Graph& g, ir::NodeId id, const Context& context);
bool concat_of_slices(ir::Graph& g, ir::NodeId id, const Context& context);
bool slice_chain(ir::Graph& g, ir::NodeId id, const Context& context);
bool gather_constant(ir::Graph& g, ir::NodeId id, const Context& context);
bool pad_into_conv(ir::Graph& g, ir::NodeId id, const Context& context);
bool add_of_pads(ir::Graph& g, ir::NodeId id, const Context& context);

}  // namespace pelton::passes
