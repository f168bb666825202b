// SPDX-License-Identifier: Apache-2.0
// Which state slots a run on a device updates in place.
#include <algorithm>

#include "ir/op.h"
#include "ir/segments.h"
#include "runtime/region.h"

namespace pelton::runtime {

using namespace ir;

namespace {

// Element i of the results depends on element i of full-size operands alone, so a kernel may write over one.
bool elementwise(const ir::Node& n) {
  if (!n.is("fused")) return n.op->scalar != nullptr;
  if (n.get_text("kind") == kSegments) return true;  // each segment reads tensors of its own
  if (n.get_text("kind") != "pointwise") return false;
  const Graph& body = n.get_graph("body");
  return std::all_of(body.order().begin(), body.order().end(), [&](NodeId id) {
    const ir::Node& inner = body[id];
    return inner.op->scalar || inner.is("cast") || inner.is("constant");
  });
}

}  // namespace

// The last reader of the old value is the step that makes the next one, or stands before it; nothing but the
// device looks at the next one.
bool Region::may_overwrite(size_t slot) const {
  const Slot& s = graph_.slots[slot];
  if (!s.next || s.next == s.old_value || segments_.size() != 1) return false;
  const Value& value = values_[s.next.index];
  const Type &old_type = s.type, &type = graph_.type(value.root);
  if (value.place != Place::host || !value.sized || !(old_type.shape == type.shape) ||
      old_type.dtype != type.dtype || old_type.layout != type.layout || !as_dims(type.shape))
    return false;
  auto root = [&](ValueId v) { return values_[v.index].root; };
  for (ValueId v : graph_.outputs)
    if (root(v) == value.root || root(v) == s.old_value) return false;
  for (size_t i = 0; i < graph_.slots.size(); ++i) {
    const Slot& other = graph_.slots[i];
    if (other.next && root(other.next) == s.old_value) return false;
    if (i != slot && other.next && root(other.next) == value.root) return false;
    if (i != slot && (other.tied_to == s.name || !s.tied_to.empty())) return false;
  }
  size_t writer = nodes_.size();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (node.implementation == kNothing) continue;
    const ir::Node& n = graph_[node.id];
    if (std::find(n.outputs.begin(), n.outputs.end(), value.root) != n.outputs.end()) {
      if (!node.on_device) return false;
      writer = i;
    }
    for (ValueId v : n.inputs) {
      if (!v) continue;
      if (root(v) == value.root && !node.on_device) return false;
      if (root(v) != s.old_value) continue;
      if (i > writer) return false;
      // Read at full size and in the order it is written in, not spread or moved.
      if (i == writer && (!elementwise(n) || !(graph_.type(v).shape == type.shape))) return false;
    }
  }
  return writer < nodes_.size();
}

void Region::place_state() {
  state_layout_ = lay_out_state(graph_);
  for (size_t i = 0; i < graph_.slots.size(); ++i) {
    if (!may_overwrite(i)) continue;
    in_place_[i] = writes_state_ = true;
    const ValueId made = values_[graph_.slots[i].next.index].root;
    for (Value& v : values_)
      if (v.root == made) v.place = Place::slot, v.index = static_cast<uint32_t>(i);
  }
}

}  // namespace pelton::runtime
