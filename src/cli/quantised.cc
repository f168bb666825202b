// SPDX-License-Identifier: Apache-2.0
#include "cli/quantised.h"

namespace pelton::cli {
namespace {

bool is_quantisation(const ir::Node& n) {
  return n.is("quantize") || n.is("dynamic_quantize") || n.is("requantize");
}

bool quantises(const ir::Graph& g) {
  for (ir::NodeId id : g.order()) {
    const ir::Node& n = g[id];
    if (is_quantisation(n)) return true;
    for (const auto& [key, value] : n.attrs)
      if (auto body = std::get_if<ir::GraphPtr>(&value); body && quantises(**body)) return true;
  }
  return false;
}

}  // namespace

std::set<std::string> quantised_values(const ir::Graph& g) {
  std::vector<bool> reached(g.value_count(), false);
  std::set<std::string> names;
  for (ir::NodeId id : g.order()) {
    const ir::Node& n = g[id];
    bool here = is_quantisation(n) && !g.constant(n.inputs[0]);
    for (ir::ValueId v : n.inputs) here = here || (v && reached[v.index]);
    for (const auto& [key, value] : n.attrs)
      if (auto body = std::get_if<ir::GraphPtr>(&value); body && quantises(**body)) here = true;
    if (!here) continue;
    for (ir::ValueId v : n.outputs) {
      reached[v.index] = true;
      names.insert(g[v].name);
    }
  }
  for (size_t i = 0; i < g.outputs.size(); ++i)
    if (reached[g.outputs[i].index]) names.insert(g.output_name(i));
  return names;
}

}  // namespace pelton::cli
