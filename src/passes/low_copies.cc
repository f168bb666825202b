// SPDX-License-Identifier: Apache-2.0
#include "passes/low_copies.h"

#include "passes/rewrite.h"
#include "tensor/float_types.h"

namespace pelton::passes {

using namespace ir;

Tensor low_copy(const Tensor& value, DType low) {
  PELTON_CHECK(value.dtype() == DType::f32 && (low == DType::f16 || low == DType::bf16), value.str(), " as ",
               name(low));
  Tensor out(low, value.dims());
  const float* from = value.as<float>();
  auto to = static_cast<uint16_t*>(out.mutable_data());
  for (int64_t i = 0; i < value.count(); ++i)
    to[i] = low == DType::f16 ? f16_from_float(from[i]) : bf16_from_float(from[i]);
  return out;
}

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
    if (parameter.initial.defined()) copy.initial = low_copy(parameter.initial, low);
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
