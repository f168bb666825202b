// SPDX-License-Identifier: Apache-2.0
#include "passes/decompose.h"

#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

bool decompose(Graph& graph, const Context& context) {
  bool changed = false;
  // A decomposition may hold composites again: rounds until none is left, bounded by the depth of the table.
  for (int round = 0; round < 8; ++round) {
    bool fired = false;
    for (NodeId id : std::vector<NodeId>(graph.order())) {
      const OpDef& op = graph.op(id);
      if (!op.decompose) continue;
      if (context.oracle && context.oracle->refuse(graph, id).empty()) continue;
      Builder b(graph, id);
      b.set_name(graph[id].name);
      const Node node = graph[id];  // a copy: the graph grows meanwhile
      std::vector<ValueId> results = op.decompose(b, node);
      if (results.empty()) continue;
      for (size_t i = 0; i < graph[id].outputs.size() && i < results.size(); ++i)
        if (results[i]) graph.replace_uses(graph[id].outputs[i], results[i]);
      context.count(cat("decompose/", op.name));
      fired = true;
    }
    if (!fired) break;
    changed = true;
    remove_dead(graph);
  }
  return changed;
}

}  // namespace pelton::passes
