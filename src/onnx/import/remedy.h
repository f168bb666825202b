// SPDX-License-Identifier: Apache-2.0
// What a user can do about a value that must be known when a model is read and is not.
#pragma once

#include <set>
#include <string>

#include "ir/graph.h"

namespace pelton::onnx {

// How to fix these sizes: --shape with the inputs of `model` that have them. Empty if no input has one of
// them, so that only a run knows.
std::string remedy_of_sizes(const ir::Graph& model, const std::set<std::string>& symbols);
// The same for what `value` of `graph` (the model or a sub-graph) is computed from, which may be contents
// that only a run knows.
std::string remedy_of_value(const ir::Graph& model, const ir::Graph& graph, ir::ValueId value);

}  // namespace pelton::onnx
