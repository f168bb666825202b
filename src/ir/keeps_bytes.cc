// SPDX-License-Identifier: Apache-2.0
#include "ir/keeps_bytes.h"

#include "ir/op.h"

namespace pelton::ir {
namespace {

// Axes other than those of size 1 as they follow each other in memory, the last one innermost.
Ints order_in_memory(const Type& t) {
  Ints axes;
  for (int64_t a = 0; a < t.rank(); ++a) axes.push_back(a);
  if (t.layout.kind == Layout::Kind::channels_last && t.rank() > 2) {
    axes.erase(axes.begin() + 1);
    axes.push_back(1);
  }
  std::erase_if(axes, [&](int64_t a) { return t.shape[static_cast<size_t>(a)] == Dim(1); });
  return axes;
}

// Of tensors that are not plain: batch and channels stay, spatial axes are joined or split.
bool reshapes_pixels(const Type& x, const Type& y) {
  return x.layout == y.layout && x.rank() > 2 && y.rank() > 2 && x.shape[0] == y.shape[0] &&
         x.shape[1] == y.shape[1];
}

}  // namespace

bool keeps_bytes(const Graph& graph, NodeId id) {
  const Node& n = graph[id];
  if (n.inputs.empty() || !n.inputs[0] || n.outputs.size() != 1) return false;
  const Type &x = graph.type(n.inputs[0]), &y = graph.type(n.outputs[0]);
  const bool view = n.op->alias == AliasRule::view;
  if (view && x.layout == y.layout && (x.layout.is_plain() || !n.is("reshape"))) return true;
  if (!x.is_tensor() || !y.is_tensor() || !x.ranked || !y.ranked) return false;
  for (const Type* t : {&x, &y})
    if (t->layout.kind == Layout::Kind::blocked) return false;
  if (n.is("reshape")) return reshapes_pixels(x, y);
  if (!n.is("layout") && !n.is("transpose")) return false;
  Ints result = order_in_memory(y);
  if (n.is("transpose"))
    for (int64_t& a : result) a = n.get_ints("perm")[static_cast<size_t>(a)];
  return result == order_in_memory(x);
}

}  // namespace pelton::ir
