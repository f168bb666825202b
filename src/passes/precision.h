// SPDX-License-Identifier: Apache-2.0
// Lower precision where it pays: contractions and convolutions compute in the named type (accumulating in
// f32), and casts are pushed outwards so that what lies between them stays in that type wherever that changes
// no value.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "passes/pass.h"

namespace pelton::passes {

// `precision`: fp32 (nothing changes), bf16, fp16. Anything else is a usage error. Nodes with a name of
// `full`, or below it ("block1" covers "block1/conv" and "block1.conv/grad"), stay as they are. Before
// differentiation the casts of the forward pass take the backward pass along; on a whole training step the
// backward forms are lowered themselves.
bool precision(ir::Graph& graph, const std::string& precision, const Context& context,
               const std::set<std::string>& full = {});

// The second half of `precision` on devices: values between products are stored in `low` as well, where they
// stay in its range. Of norms and dropout, forward and backward, the data is; statistics, scales and ratios
// are not. Parameters that meet such values are cast.
bool spread_precision(ir::Graph& graph, DType low, const Context& context,
                      const std::set<std::string>& full = {});

// The name, or what it lies below, is one of `names`.
bool covered(std::string_view name, const std::set<std::string>& names);

// Replaces the one f32 result of `node` by the same op on `inputs`, cast back; false, and nothing replaced,
// if the op does not take them or does not yield `low`.
bool computed_low(ir::Graph& graph, ir::NodeId node, const std::vector<ir::ValueId>& inputs, DType low);

}  // namespace pelton::passes
