// SPDX-License-Identifier: Apache-2.0
#include "passes/fusion.h"

#include <algorithm>
#include <set>

#include "passes/fuse_blocks.h"
#include "passes/fuse_products.h"
#include "passes/fuse_training.h"
#include "passes/fuse_updates.h"
#include "passes/group.h"
#include "passes/narrow_reads.h"
#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

constexpr size_t kMaxEpilogue = 10, kMaxPointwise = 48;

// quantize, dequantize or requantize by constants, without blocks.
bool scales_only(const Graph& g, const Node& n) {
  if (!n.is("quantize") && !n.is("dequantize") && !n.is("requantize")) return false;
  if (n.op->find_attr("block") && n.get_int("block") != 0) return false;
  for (size_t i = 1; i < n.inputs.size(); ++i)
    if (n.inputs[i] && !g.constant(n.inputs[i])) return false;
  return true;
}

// Elementwise on its inputs, one result: what tile programs and epilogues are made of.
bool elementwise(const Graph& g, NodeId id) {
  static const std::set<std::string_view> activations = {
      "gelu", "silu", "hard_sigmoid", "hard_swish", "leaky_relu", "elu", "selu",
      "celu", "mish", "softsign",     "prelu",      "clamp",      "cast"};
  const Node& n = g[id];
  return n.outputs.size() == 1 && g.type(n.outputs[0]).is_tensor() &&
         g.type(n.outputs[0]).dtype != DType::string &&
         ((n.op->family == Family::pointwise && n.op->scalar) || activations.count(n.op->name) ||
          scales_only(g, n));
}

// Makes a group, asks whether something runs it, and undoes it if not.
bool try_group(Graph& g, const std::vector<NodeId>& members, const char* kind, const Context& context) {
  NodeId fused = make_group(g, members, kind);
  if (!context.oracle || context.oracle->refuse(g, fused).empty()) {
    context.count(cat("fusion/", kind));
    return true;
  }
  dissolve_group(g, fused);
  return false;
}

// Whether a group may keep the value to itself, where it stays in f32: not if 16-bit values must round.
bool may_stay_inside(const Graph& g, ValueId v, const Context& context) {
  const DType t = g.type(v).dtype;
  return !context.strict || (t != DType::f16 && t != DType::bf16);
}

// A cast to more bits that only groups read: they take it along, and the value is stored in the fewer.
bool read_through(const Graph& g, NodeId id) {
  if (!g[id].is("cast") || g.is_output(result(g, id)) ||
      bits(g.type(input(g, id, 0)).dtype) >= bits(g.type(result(g, id)).dtype))
    return false;
  const auto& uses = g[result(g, id)].uses;
  return std::all_of(uses.begin(), uses.end(), [&](Use u) {
    return elementwise(g, u.user) || g[u.user].op->family == Family::reduction;
  });
}

// select(guard, ...) by one value that is computed, as what keeps an update off whose loss is not finite. A
// gradient in one group with it would wait for the whole backward pass and keep its operands until then.
bool guards(const Graph& g, NodeId id) {
  return g[id].is("select") && g.type(input(g, id, 0)).shape.empty() && g[input(g, id, 0)].producer;
}

// anchor -> elementwise -> elementwise ..., each the only user of the one before and of the same shape;
// `gated`: behind the product with factors that gate_of() finds.
bool fuse_chain(Graph& g, NodeId anchor, const char* kind, bool gated, const Context& context) {
  std::vector<NodeId> chain{anchor};
  ValueId v = result(g, anchor);
  Shape shape = g.type(v).shape;
  while (chain.size() < kMaxEpilogue && single_use(g, v) && may_stay_inside(g, v, context)) {
    NodeId user = g[v].uses[0].user;
    if (!elementwise(g, user) || guards(g, user) || !(g.type(result(g, user)).shape == shape) ||
        g.type(result(g, user)).layout != g.type(v).layout)
      break;
    chain.push_back(user);
    v = result(g, user);
  }
  for (; chain.size() > (gated ? 0 : 1); chain.pop_back()) {
    if (context.target.kind == device::Kind::cuda && read_through(g, chain.back())) continue;
    size_t count = chain.size();
    NodeId first = chain.front();
    std::vector<NodeId> members = chain;
    if (gated) members.insert(members.begin(), gate_of(g, first));
    if (try_group(g, members, kind, context)) return true;
    // Dissolving made new nodes: find the chain again from its anchor's copy.
    chain.clear();
    for (NodeId id : g.order())
      if (g[id].stable_id == g[first].stable_id && g[id].alive) chain.push_back(id);
    if (chain.size() != 1) return false;
    for (ValueId x = result(g, chain[0]); chain.size() < count; x = result(g, chain.back())) {
      if (!single_use(g, x)) return false;
      chain.push_back(g[x].uses[0].user);
    }
  }
  return false;
}

bool fuse_epilogue(Graph& g, NodeId anchor, const char* kind, const Context& context) {
  const NodeId gate = g[anchor].is("conv") ? gate_of(g, anchor) : NodeId{};
  if (!gate || !may_stay_inside(g, result(g, gate), context))
    return fuse_chain(g, anchor, kind, false, context);
  const uint64_t stable = g[anchor].stable_id;
  if (fuse_chain(g, anchor, kind, true, context)) return true;
  for (NodeId id : g.order())
    if (g[id].alive && g[id].stable_id == stable) return fuse_chain(g, id, kind, false, context);
  return false;
}

// Producers of the group's inputs join it while all their users are in it and they have the group's shape.
std::vector<NodeId> grow(const Graph& g, NodeId seed, const Shape& shape, const Layout& layout,
                         const Context& context) {
  std::set<NodeId> inside{seed};
  std::vector<NodeId> queue{seed};
  while (!queue.empty() && inside.size() < kMaxPointwise) {
    NodeId id = queue.back();
    queue.pop_back();
    for (ValueId v : g[id].inputs) {
      NodeId p = v ? g[v].producer : NodeId{};
      if (!p || inside.count(p) || !elementwise(g, p) || g.is_output(v) || g.constant(v)) continue;
      if (!(g.type(v).shape == shape) || g.type(v).layout != layout || !may_stay_inside(g, v, context))
        continue;
      bool enclosed =
          std::all_of(g[v].uses.begin(), g[v].uses.end(), [&](Use u) { return inside.count(u.user) != 0; });
      if (!enclosed) continue;
      // What only the reference runs would take the whole group there.
      if (context.oracle && !context.oracle->refuse(g, p).empty()) continue;
      inside.insert(p);
      queue.push_back(p);
      // What was held back by an outside user may be enclosed now.
      for (NodeId other : inside)
        if (other != p) queue.push_back(other);
      if (queue.size() > 4096) break;
    }
  }
  std::vector<NodeId> members;
  for (NodeId id : g.order())
    if (inside.count(id)) members.push_back(id);
  return members;
}

bool is_reduction(const Graph& g, NodeId id) {
  return g[id].op->family == Family::reduction && g[id].outputs.size() == 1;
}

// Each group that reads a value of fewer bytes through a cast gets a cast of its own: shared by two groups,
// it would be stored in the wider type.
bool split_casts(Graph& g) {
  bool changed = false;
  for (NodeId id : std::vector<NodeId>(g.order())) {
    if (!g[id].is("cast") || g[result(g, id)].uses.size() < 2 || g.is_output(result(g, id)) ||
        bits(g.type(input(g, id, 0)).dtype) >= bits(g.type(result(g, id)).dtype) ||
        g.constant(input(g, id, 0)))
      continue;
    NodeId first{};
    for (Use u : std::vector<Use>(g[result(g, id)].uses)) {
      if (!elementwise(g, u.user) && !is_reduction(g, u.user)) continue;
      if (!first || first == u.user) {  // one user keeps the cast, wherever it reads it
        first = u.user;
        continue;
      }
      Builder b(g, id);
      b.set_name(g[id].name);
      g.set_input(u.user, u.input, b.cast(input(g, id, 0), g.type(result(g, id)).dtype));
      changed = true;
    }
  }
  return changed;
}

}  // namespace

bool fusion(Graph& graph, const Context& context) {
  bool changed = remove_dead(graph);  // a group of dead nodes would have no result
  if (context.target.kind == device::Kind::cuda) {
    const bool blocks = !context.strict;  // they keep what lies inside in f32
    if (blocks) changed |= narrow_reads(graph, context);
    if (blocks) changed |= fuse_squeeze_excite(graph, context);
    changed |= fuse_attention_views(graph, context);
    if (blocks) changed |= fuse_training(graph, context);
    if (blocks) changed |= fuse_products(graph, context);
    changed |= split_casts(graph);
    changed |= fuse_updates(graph, context);
  }
  for (NodeId id : std::vector<NodeId>(graph.order())) {
    if (!graph[id].alive) continue;
    if (graph[id].is("conv") || graph[id].is("conv_transpose"))
      changed |= fuse_epilogue(graph, id, "conv", context);
    else if (graph[id].is("matmul"))
      changed |= fuse_epilogue(graph, id, "matmul", context);
  }
  std::vector<NodeId> order(graph.order());
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    NodeId id = *it;
    if (!graph[id].alive) continue;
    bool reduction = is_reduction(graph, id);
    if (!reduction && !elementwise(graph, id)) continue;
    ValueId shaped = reduction ? input(graph, id, 0) : result(graph, id);
    std::vector<NodeId> members =
        grow(graph, id, graph.type(shaped).shape, graph.type(shaped).layout, context);
    if (members.size() < 2) continue;
    changed |= try_group(graph, members, reduction ? "reduce" : "pointwise", context);
  }
  if (context.target.kind == device::Kind::cuda) changed |= order_updates(graph);
  remove_dead(graph);  // constants that a split group has copies of
  return changed;
}

}  // namespace pelton::passes
