// SPDX-License-Identifier: Apache-2.0
// Layers that fp16 cannot hold: what they take or yield on samples comes near its largest number.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "backend/kernel.h"
#include "runtime/plan.h"

namespace pelton::compiler {

// Names of the contractions of an f32 graph that must stay in f32; nodes without a name get one. `compile`
// makes a plan of an f32 graph. Adds to `notes` which, and how far they reach.
std::set<std::string> out_of_f16(ir::Graph& graph, const std::vector<std::vector<Tensor>>& samples,
                                 const backend::Registry& registry,
                                 const std::function<runtime::Plan(ir::Graph)>& compile,
                                 std::vector<std::string>& notes);

// Contractions and convolutions, in order; those without a name get one.
std::vector<ir::NodeId> named_contractions(ir::Graph& graph);

}  // namespace pelton::compiler
