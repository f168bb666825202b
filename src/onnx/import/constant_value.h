// SPDX-License-Identifier: Apache-2.0
// Values that follow from constants alone, computed while a model is read: axes, pads and conditions that an
// exporter spelled as a chain of small nodes.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "ir/graph.h"

namespace pelton::onnx {

// Inputs of a graph whose values the caller gave, and those of them that the result came to depend on.
struct KnownInputs {
  std::map<ir::ValueId, Tensor> values;
  std::set<ir::ValueId> used;
};

// None unless every leaf is a constant, a known size or a known input, and every step is small.
std::optional<Tensor> constant_value(const ir::Graph& graph, ir::ValueId value, KnownInputs* known = nullptr);

}  // namespace pelton::onnx
