// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/control/sizes.h"

namespace pelton::backend::cuda {

using namespace ir;

Symbols symbols_of_operands(const Graph& graph, NodeId node) {
  Symbols out;
  for (ValueId v : graph[node].inputs)
    if (v)
      for (const Dim& d : graph.type(v).shape) d.collect_symbols(out);
  return out;
}

bool known(const Shape& shape, const Symbols& symbols) {
  Symbols wanted;
  for (const Dim& d : shape) d.collect_symbols(wanted);
  for (const std::string& s : wanted)
    if (!symbols.count(s)) return false;
  return true;
}

GraphPtr at_sizes(const Graph& graph, const SymbolValues& sizes) {
  auto g = std::make_shared<Graph>(graph);
  auto fix = [&](Shape& shape) { shape = to_shape(eval(shape, sizes)); };
  auto fix_value = [&](ValueId v) {
    fix(g->edit(v).type.shape);
    if (auto& contents = g->edit(v).contents) fix(*contents);
  };
  for (ValueId v : g->inputs) fix_value(v);
  for (NodeId id : g->order()) {
    for (auto& [key, value] : g->edit(id).attrs) {
      if (auto dims = std::get_if<Shape>(&value))
        fix(*dims);
      else if (auto body = std::get_if<GraphPtr>(&value))
        value = at_sizes(**body, sizes);
    }
    for (ValueId v : (*g)[id].outputs) fix_value(v);
  }
  return g;
}

}  // namespace pelton::backend::cuda
