// SPDX-License-Identifier: Apache-2.0
#include "passes/low_copies.h"

#include "passes/rewrite.h"
#include "tensor/narrow.h"

namespace pelton::passes {

using namespace ir;

bool keep_low_copies(Graph& graph) {
  bool changed = false;
  const size_t count = graph.slots.size();
  for (size_t i = 0; i < count; ++i) {
    const Slot parameter = graph.slots[i];  // a copy: slots are added
    if (parameter.kind != SlotKind::parameter || parameter.type.dtype != DType::f32 ||
        !parameter.tied_to.empty())
      continue;
    std::vector<NodeId> casts;
    for (Use u : graph[parameter.old_value].uses) {
      const Node& n = graph[u.user];
      if (!n.is("cast")) continue;
      const DType to = n.get_dtype("to");
      if (to == DType::f16 || to == DType::bf16) casts.push_back(u.user);
    }
    if (casts.empty()) continue;
    const DType low = graph[casts[0]].get_dtype("to");
    Slot copy;
    copy.name = cat("low.", parameter.name);
    copy.kind = SlotKind::cache;
    copy.type = Type::tensor(low, parameter.type.shape);
    if (parameter.initial.defined()) copy.initial = narrowed(parameter.initial, low);
    const ValueId old = graph.add_slot(std::move(copy));
    for (NodeId c : casts)
      if (graph[c].get_dtype("to") == low) graph.replace_uses(graph[c].outputs[0], old);
    if (parameter.next) {
      Builder b(graph);
      b.set_name(cat("update/", parameter.name));
      graph.slots.back().next = b.cast(parameter.next, low);
    }
    changed = true;
  }
  if (changed) remove_dead(graph);
  return changed;
}

}  // namespace pelton::passes
