// SPDX-License-Identifier: Apache-2.0
#include "passes/narrow_reads.h"

#include <algorithm>

#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

bool widens(const Graph& g, NodeId cast) {
  const DType from = g.type(input(g, cast, 0)).dtype, to = g.type(result(g, cast)).dtype;
  return is_float(from) && is_float(to) && bits(from) < bits(to);
}

// arg_max of a wider copy is arg_max of the value.
bool narrow_place(Graph& g, NodeId id) {
  const NodeId cast = producer(g, input(g, id, 0), "cast");
  if (!cast || !widens(g, cast) || g.type(input(g, cast, 0)).layout != g.type(result(g, cast)).layout)
    return false;
  g.set_input(id, 0, input(g, cast, 0));
  return true;
}

// cast(reshape(x)) as reshape(cast(x)).
bool cast_before_reshape(Graph& g, NodeId id) {
  const ValueId v = input(g, id, 0);
  const NodeId reshape = producer(g, v, "reshape");
  const DType from = g.type(v).dtype, to = g.type(result(g, id)).dtype;
  if (!reshape || !is_float(from) || !is_float(to) || bits(to) >= bits(from) ||
      !g.type(v).layout.is_plain() || !g.type(input(g, reshape, 0)).layout.is_plain())
    return false;
  Builder b(g, id);
  b.set_name(g[id].name);
  replace(g, id, b.reshape(b.op("cast", {input(g, reshape, 0)}, g[id].attrs), g.type(v).shape));
  return true;
}

// A sum of x where others read x, or the value that it is a reshape of, in 16 bits: it reads that too.
bool narrow_sum(Graph& g, NodeId id) {
  const ValueId v = input(g, id, 0);
  if (g.type(v).dtype != DType::f32 || !g.type(v).layout.is_plain()) return false;
  ValueId x = v;
  if (const NodeId reshape = producer(g, v, "reshape")) x = input(g, reshape, 0);
  for (Use u : g[x].uses) {
    if (!g[u.user].is("cast") || bits(g.type(result(g, u.user)).dtype) != 16 ||
        !is_float(g.type(result(g, u.user)).dtype) || !g.type(result(g, u.user)).layout.is_plain())
      continue;
    const ValueId narrow = result(g, u.user);
    // The narrow copy must be there before the sum.
    const auto& order = g.order();
    if (std::find(order.begin(), order.end(), u.user) > std::find(order.begin(), order.end(), id)) {
      Builder early(g, id);
      early.set_name(g[u.user].name);
      const ValueId copy = early.op("cast", {x}, g[u.user].attrs);
      g.replace_uses(narrow, copy);
      Builder b(g, id);
      b.set_name(g[id].name);
      g.set_input(id, 0, b.cast(b.reshape(copy, g.type(v).shape), DType::f32));
      return true;
    }
    Builder b(g, id);
    b.set_name(g[id].name);
    g.set_input(id, 0, b.cast(b.reshape(narrow, g.type(v).shape), DType::f32));
    return true;
  }
  return false;
}

}  // namespace

bool narrow_reads(Graph& graph, const Context& context) {
  bool changed = false;
  auto each = [&](std::string_view op, bool (*rule)(Graph&, NodeId), std::string_view name) {
    for (NodeId id : std::vector<NodeId>(graph.order()))
      if (graph[id].alive && graph[id].is(op) && rule(graph, id)) {
        context.count(name);
        changed = true;
      }
  };
  each("arg_max", narrow_place, "narrow_reads/place");
  each("cast", cast_before_reshape, "narrow_reads/cast_before_reshape");
  if (context.lowered) each("reduce_sum", narrow_sum, "narrow_reads/sum");
  remove_dead(graph);
  return changed;
}

}  // namespace pelton::passes
