// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse_training.h"

#include <algorithm>

#include "passes/group.h"
#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

// Makes a group of the nodes if the target takes it.
bool try_group(Graph& g, const std::vector<NodeId>& nodes, const char* kind, const Context& context) {
  std::vector<NodeId> members;
  for (NodeId id : g.order())
    if (std::find(nodes.begin(), nodes.end(), id) != nodes.end()) members.push_back(id);
  const NodeId fused = make_group(g, members, kind);
  if (context.oracle && context.oracle->refuse(g, fused).empty()) {
    context.count(cat("fusion/", kind));
    return true;
  }
  dissolve_group(g, fused);
  return false;
}

// A cast of its own for operand i of a node, if that is a cast from fewer bytes; others may read the old one.
NodeId own_cast(Graph& g, NodeId id, size_t i) {
  const ValueId v = input(g, id, i);
  const NodeId cast = producer(g, v, "cast");
  if (!cast || bits(g.type(input(g, cast, 0)).dtype) >= bits(g.type(v).dtype)) return {};
  if (single_use(g, v)) return cast;
  Builder b(g, id);
  b.set_name(g[cast].name);
  const ValueId copy = b.op("cast", {input(g, cast, 0)}, g[cast].attrs);
  g.edit(copy).type.layout = g.type(v).layout;
  g.set_input(id, i, copy);
  return g[copy].producer;
}
// The cast that alone reads v, to fewer bytes or to more.
NodeId following_cast(const Graph& g, ValueId v) {
  if (!single_use(g, v) || !g[g[v].uses[0].user].is("cast")) return {};
  const NodeId cast = g[v].uses[0].user;
  return g.type(result(g, cast)).layout == g.type(v).layout ? cast : NodeId{};
}

bool fuse_loss(Graph& g, NodeId id, const Context& context) {
  const bool forward = g[id].is("cross_entropy");
  std::vector<NodeId> nodes{id};
  if (const NodeId cast = own_cast(g, id, forward ? 0 : 1)) nodes.push_back(cast);
  if (!forward)
    if (const NodeId cast = following_cast(g, result(g, id))) nodes.push_back(cast);
  return nodes.size() > 1 && try_group(g, nodes, "cross_entropy", context);
}

bool fuse_weights(Graph& g, NodeId id, const Context& context) {
  const NodeId cast = following_cast(g, result(g, id));
  return cast && try_group(g, {id, cast}, "conv", context);
}

bool is_activation(const Node& n) {
  static constexpr std::string_view kNames[] = {"relu",    "clamp",      "silu",        "gelu",
                                                "sigmoid", "hard_swish", "hard_sigmoid"};
  return std::find(std::begin(kNames), std::end(kNames), n.op->name) != std::end(kNames);
}

// batch_norm_train, perhaps a sum with a value that is there before, perhaps an activation.
bool fuse_norm(Graph& g, NodeId id, const Context& context) {
  std::vector<NodeId> chain{id};
  ValueId v = result(g, id);
  const Layout layout = g.type(v).layout;
  while (single_use(g, v)) {
    const NodeId user = g[v].uses[0].user;
    const Node& n = g[user];
    const bool last = is_activation(n);
    if (!(last || (n.is("add") && chain.size() == 1)) || !same_shape(g, v, result(g, user)) ||
        g.type(result(g, user)).layout != layout || g.type(result(g, user)).dtype != g.type(v).dtype)
      break;
    chain.push_back(user);
    v = result(g, user);
    if (last) break;
  }
  const uint64_t stable = g[id].stable_id;
  while (chain.size() > 1) {
    if (try_group(g, chain, "batch_norm", context)) return true;
    // Dissolving made new nodes: the chain again, without its last.
    const size_t left = chain.size() - 1;
    chain.clear();
    for (NodeId n : g.order())
      if (g[n].stable_id == stable && g[n].is("batch_norm_train")) chain.push_back(n);
    if (chain.size() != 1) return false;
    while (chain.size() < left) chain.push_back(g[result(g, chain.back())].uses[0].user);
  }
  return false;
}

// What lets a gradient through by the result of a norm: g where it is positive; g where it lies in [0, 6];
// the nodes of either, and the value that they test.
struct Gate {
  std::vector<NodeId> nodes;
  ValueId tested;
};
Gate gate_of(const Graph& g, ValueId v) {
  auto select = [&](ValueId from, std::string_view test, double bound, NodeId& chosen, NodeId& compared) {
    chosen = producer(g, from, "select");
    if (!chosen || !is_uniform(g, input(g, chosen, 2), 0)) return false;
    compared = producer(g, input(g, chosen, 0), test);
    return compared && single_use(g, input(g, chosen, 0)) && is_uniform(g, input(g, compared, 1), bound);
  };
  NodeId outer, above, inner, below;
  if (select(v, "gt", 0, outer, above)) return {{outer, above}, input(g, above, 0)};
  if (!select(v, "le", 6, outer, below)) return {};
  const ValueId between = input(g, outer, 1), raised = input(g, below, 0);
  const NodeId relu = producer(g, raised, "relu");
  if (!relu || !single_use(g, raised) || !single_use(g, between) || !select(between, "ge", 0, inner, above) ||
      input(g, above, 0) != input(g, relu, 0))
    return {};
  return {{outer, below, relu, inner, above}, input(g, relu, 0)};
}

// The result of a batch norm from its operand and its statistics; the nodes go to `nodes`.
ValueId norm_again(Graph& g, NodeId before, NodeId norm, std::vector<NodeId>& nodes) {
  Builder b(g, before);
  b.set_name(g[norm].name);
  const ValueId x = input(g, norm, 0);
  const Type type = g.type(x);
  const DType wide = g.type(result(g, norm, 3)).dtype;
  Shape channel(type.shape.size(), Dim(1));
  channel[1] = type.shape[1];
  auto made = [&](ValueId v, bool full) {
    if (full) g.edit(v).type.layout = type.layout;
    nodes.push_back(g[v].producer);
    return v;
  };
  auto per_channel = [&](ValueId v) {
    if (g.type(v).dtype != wide) v = made(b.cast(v, wide), false);
    return made(b.reshape(v, channel), false);
  };
  ValueId v = type.dtype == wide ? x : made(b.cast(x, wide), true);
  v = made(b.sub(v, per_channel(result(g, norm, 3))), true);
  v = made(b.mul(v, per_channel(result(g, norm, 4))), true);
  v = made(b.mul(v, per_channel(input(g, norm, 1))), true);
  v = made(b.add(v, per_channel(input(g, norm, 2))), true);
  return type.dtype == wide ? v : made(b.cast(v, type.dtype), true);
}

bool fuse_norm_backward(Graph& g, NodeId id, const Context& context) {
  const ValueId gradient = input(g, id, 0), x = input(g, id, 1);
  const NodeId norm = producer(g, input(g, id, 3), "batch_norm_train");
  if (!norm || input(g, norm, 0) != x || input(g, id, 3) != result(g, norm, 3) ||
      input(g, id, 4) != result(g, norm, 4) || input(g, id, 2) != input(g, norm, 1) ||
      !single_use(g, gradient))
    return false;
  Gate gate = gate_of(g, gradient);
  if (gate.nodes.empty()) return false;
  // By the norm's own result or by what a ReLU makes of it, which is positive where it is.
  const ValueId y = result(g, norm);
  const NodeId relu = producer(g, gate.tested, "relu");
  if (gate.tested != y && !(relu && input(g, relu, 0) == y && gate.nodes.size() == 2)) return false;
  std::vector<NodeId> nodes = gate.nodes;
  nodes.push_back(id);
  NodeId first = id;
  for (NodeId n : g.order())
    if (std::find(gate.nodes.begin(), gate.nodes.end(), n) != gate.nodes.end()) {
      first = n;
      break;
    }
  const ValueId again = norm_again(g, first, norm, nodes);
  for (NodeId n : gate.nodes)
    if (input(g, n, 0) == gate.tested) g.set_input(n, 0, again);
  std::vector<NodeId> members;
  for (NodeId n : g.order())
    if (std::find(nodes.begin(), nodes.end(), n) != nodes.end()) members.push_back(n);
  const NodeId fused = make_group(g, members, "batch_norm_backward");
  if (context.oracle && context.oracle->refuse(g, fused).empty()) {
    context.count("fusion/batch_norm_backward");
    return true;
  }
  // The tests read what they read before; what was made above is dead then.
  for (NodeId n : dissolve_group(g, fused))
    if (g[n].is("gt") || g[n].is("ge") || g[n].is("relu")) g.set_input(n, 0, gate.tested);
  return false;
}

}  // namespace

bool fuse_training(Graph& graph, const Context& context) {
  bool changed = false;
  for (NodeId id : std::vector<NodeId>(graph.order())) {
    if (!graph[id].alive) continue;
    if (graph[id].is("cross_entropy") || graph[id].is("cross_entropy_backward"))
      changed |= fuse_loss(graph, id, context);
    else if (graph[id].is("conv_backward_weights"))
      changed |= fuse_weights(graph, id, context);
    else if (graph[id].is("batch_norm_backward"))
      changed |= fuse_norm_backward(graph, id, context);
  }
  remove_dead(graph);
  // After the gradients: these no longer read what lies between a norm and its activation.
  for (NodeId id : std::vector<NodeId>(graph.order()))
    if (graph[id].alive && graph[id].is("batch_norm_train")) changed |= fuse_norm(graph, id, context);
  return changed;
}

}  // namespace pelton::passes
