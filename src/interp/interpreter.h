// SPDX-License-Identifier: Apache-2.0
// The reference interpreter: runs a graph op by op through the eval column of the op table. Slow and obvious;
// the oracle for every backend and pass, and the engine of constant folding.
#pragma once

#include <functional>

#include "ir/eval.h"
#include "ir/graph.h"

namespace pelton::interp {

struct Options {
  ir::RandomKey random;
  SymbolValues symbols;  // sizes known beforehand (sub-graphs inherit them)
  // Called after each node with its results, in order; for verify and for debugging.
  std::function<void(ir::NodeId, const std::vector<ir::HostValue>&)> observe;
};

struct Result {
  std::vector<ir::HostValue> outputs;
  std::vector<ir::HostValue> next_state;  // one a slot; undefined where the graph stores nothing
};

// `inputs` in graph order; `state` one a slot (empty: initial values). Input types and sizes are checked
// against the graph: bad_type, bad_shape with the input's name.
Result run(const ir::Graph& graph, const std::vector<ir::HostValue>& inputs,
           const std::vector<ir::HostValue>& state = {}, const Options& options = {});

// One node on given values; symbols must have values for every symbol its attributes name.
std::vector<ir::HostValue> run_node(const ir::Graph& graph, ir::NodeId node,
                                    const std::vector<ir::HostValue>& inputs, const Options& options = {});

// Gives every bare symbol in `type` the size found in `dims`; sizes already known must agree (bad_shape).
void bind_symbols(const ir::Type& type, const Dims& dims, SymbolValues& symbols, std::string_view what);

}  // namespace pelton::interp
