// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse_training.h"

#include <algorithm>

#include "passes/group.h"
#include "passes/rewrite.h"
#include "passes/training_groups.h"

namespace pelton::passes {

using namespace ir;

namespace {

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

// Kernels of one place and grouped convolutions write f32 at no cost. The library's plans for others are
// slower with a result of f32 than with one of 16 bits and a cast behind: 12.5 against 4.0 ms in a step of
// ResNet-50 on an H200.
bool fuse_weights(Graph& g, NodeId id, const Context& context) {
  const Shape& weights = g.type(result(g, id)).shape;
  const bool one_place =
      std::all_of(weights.begin() + 2, weights.end(), [](const Dim& d) { return d == Dim(1); });
  if (!one_place && g[id].get_int("groups") == 1) return false;
  const NodeId cast = following_cast(g, result(g, id));
  return cast && try_group(g, {id, cast}, "conv", context);
}

// The gradient of a row's norm and the sum that alone reads it.
bool fuse_row_norm(Graph& g, NodeId id, const Context& context) {
  const ValueId dx = result(g, id);
  if (!single_use(g, dx)) return false;
  const NodeId sum = g[dx].uses[0].user;
  return g[sum].is("add") && same_shape(g, dx, result(g, sum)) &&
         g.type(result(g, sum)).dtype == g.type(dx).dtype &&
         try_group(g, {id, sum}, "norm_backward", context);
}

}  // namespace

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

NodeId find_node(const Graph& g, uint64_t stable, std::string_view op) {
  for (NodeId n : g.order())
    if (g[n].stable_id == stable && g[n].is(op)) return n;
  return {};
}

bool group_or_restore(Graph& g, const std::vector<NodeId>& nodes, NodeId id,
                      const std::vector<ValueId>& inputs, const char* kind, const Context& context) {
  const uint64_t stable = g[id].stable_id;
  const std::string op(g[id].op->name);
  if (try_group(g, nodes, kind, context)) return true;
  id = find_node(g, stable, op);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i]) g.set_input(id, i, inputs[i]);
  return false;
}

bool fuse_training(Graph& graph, const Context& context) {
  bool changed = false;
  for (NodeId id : std::vector<NodeId>(graph.order())) {
    if (!graph[id].alive) continue;
    if (graph[id].is("cross_entropy") || graph[id].is("cross_entropy_backward"))
      changed |= fuse_loss(graph, id, context);
    else if (graph[id].is("conv_backward_weights"))
      changed |= fuse_weights(graph, id, context);
    else if (graph[id].is("layer_norm_backward") || graph[id].is("rms_norm_backward"))
      changed |= fuse_row_norm(graph, id, context);
    else if (graph[id].is("attention_backward"))
      changed |= fuse_attention(graph, id, context);
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
