// SPDX-License-Identifier: Apache-2.0
// Attention in training and its gradient, with the views of their operands and results.
#include <algorithm>

#include "passes/rewrite.h"
#include "passes/training_groups.h"

namespace pelton::passes {

using namespace ir;

namespace {

bool is_view(const Graph& g, NodeId id) {
  return id && (g[id].is("slice") || g[id].is("reshape") || g[id].is("transpose"));
}

// Operand i of a node by views of its own, of `base` or what is no view; these go to `nodes`.
void own_views(Graph& g, NodeId id, size_t i, ValueId base, std::vector<NodeId>& nodes) {
  std::vector<NodeId> chain;
  for (ValueId v = input(g, id, i); v != base && is_view(g, g[v].producer); v = input(g, chain.back(), 0))
    chain.push_back(g[v].producer);
  if (chain.empty()) return;
  ValueId v = input(g, chain.back(), 0);
  for (auto it = chain.rbegin(); it != chain.rend(); ++it) {
    Builder b(g, id);
    b.set_name(g[*it].name);
    v = b.op(g[*it].op->name, {v}, g[*it].attrs);
    nodes.push_back(g[v].producer);
  }
  g.set_input(id, i, v);
}

// The one transpose of heads into rows that alone reads v, with the reshape behind it; none else.
std::vector<NodeId> into_rows(const Graph& g, ValueId v) {
  if (!single_use(g, v)) return {};
  std::vector<NodeId> out{g[v].uses[0].user};
  if (!g[out[0]].is("transpose") || g[out[0]].get_ints("perm") != Ints{0, 2, 1, 3}) return {};
  const ValueId rows = result(g, out[0]);
  if (single_use(g, rows) && g[g[rows].uses[0].user].is("reshape")) out.push_back(g[rows].uses[0].user);
  return out;
}

}  // namespace

// The gradient of attention with the views of its operands and results; then the attention, whose result its
// gradient reads from the rows that it has become.
bool fuse_attention(Graph& g, NodeId id, const Context& context) {
  const NodeId forward = producer(g, input(g, id, 4), "attention");
  if (!forward || input(g, id, 4) != result(g, forward)) return false;
  const ValueId y = result(g, forward);
  const std::vector<ValueId> inputs = g[id].inputs, forward_inputs = g[forward].inputs;
  // y as a view of its rows, if all other readers take these.
  NodeId transpose;
  for (Use u : g[y].uses)
    if (g[u.user].is("transpose") && g[u.user].get_ints("perm") == Ints{0, 2, 1, 3}) transpose = u.user;
  ValueId rows;
  if (transpose && g[y].uses.size() == 2) {
    rows = result(g, transpose);
    const Shape shape = g.type(rows).shape;
    if (single_use(g, rows) && g[g[rows].uses[0].user].is("reshape")) rows = result(g, g[rows].uses[0].user);
    const std::vector<NodeId>& order = g.order();
    const auto at = std::find(order.begin(), order.end(), id);
    if (std::find(order.begin(), at, g[rows].producer) == at) {
      rows = {};  // it is made after its reader would run
    } else {
      Builder b(g, id);
      b.set_name(g[id].name);
      g.set_input(id, 4, b.transpose(b.reshape(rows, shape), {0, 2, 1, 3}));
    }
  }
  std::vector<NodeId> nodes{id};
  for (size_t i = 0; i < 5; ++i) own_views(g, id, i, rows, nodes);
  for (ValueId v : g[id].outputs)
    for (NodeId n : into_rows(g, v)) nodes.push_back(n);
  const uint64_t stable = g[forward].stable_id;
  if (!group_or_restore(g, nodes, id, inputs, "attention_backward", context)) return false;
  const NodeId again = find_node(g, stable, "attention");
  nodes = {again};
  for (size_t i = 0; i < 3; ++i) own_views(g, again, i, {}, nodes);
  for (NodeId n : into_rows(g, result(g, again))) nodes.push_back(n);
  if (nodes.size() > 1) group_or_restore(g, nodes, again, forward_inputs, "attention", context);
  return true;
}

}  // namespace pelton::passes
