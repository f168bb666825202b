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

// What lets a gradient through: where a value, `tested`, is positive, or where it lies in [0, 6].
struct Gate {
  enum Kind : uint8_t { none, positive, to_six } kind = none;
  ValueId tested, gradient;
};
// v itself, or what it is a wider copy of: tests yield the same for both.
ValueId narrow(const Graph& g, ValueId v) {
  const NodeId cast = producer(g, v, "cast");
  const bool wider = cast && is_float(g.type(input(g, cast, 0)).dtype) &&
                     bits(g.type(input(g, cast, 0)).dtype) < bits(g.type(v).dtype);
  return wider ? input(g, cast, 0) : v;
}
// select(test(tested, bound), through, 0).
bool is_select(const Graph& g, ValueId v, std::string_view test, double bound, ValueId& tested,
               ValueId& through) {
  const NodeId select = producer(g, v, "select");
  if (!select || !is_uniform(g, input(g, select, 2), 0)) return false;
  const NodeId compare = producer(g, input(g, select, 0), test);
  if (!compare || !is_uniform(g, input(g, compare, 1), bound)) return false;
  tested = narrow(g, input(g, compare, 0));
  through = input(g, select, 1);
  return true;
}
Gate gate_of(const Graph& g, ValueId v) {
  Gate gate;
  ValueId raised, inner;
  if (is_select(g, v, "gt", 0, gate.tested, gate.gradient)) {
    gate.kind = Gate::positive;
  } else if (is_select(g, v, "le", 6, raised, inner) &&
             is_select(g, inner, "ge", 0, gate.tested, gate.gradient)) {
    const NodeId relu = producer(g, raised, "relu");
    if (relu && input(g, relu, 0) == gate.tested) gate.kind = Gate::to_six;
  }
  return gate;
}

// Nodes made in front of one, noted, their results laid out like the data.
class Maker {
 public:
  Maker(Graph& g, NodeId before, Layout layout) : g_(g), b_(g, before), layout_(layout) {
    b_.set_name(g[before].name);
  }
  Builder& builder() { return b_; }
  ValueId channel(ValueId v) { return note(v, {}); }
  ValueId full(ValueId v) { return note(v, layout_); }
  const std::vector<NodeId>& nodes() const { return nodes_; }

 private:
  ValueId note(ValueId v, Layout layout) {
    g_.edit(v).type.layout = layout;
    nodes_.push_back(g_[v].producer);
    return v;
  }
  Graph& g_;
  Builder b_;
  Layout layout_;
  std::vector<NodeId> nodes_;
};

// The result of a batch norm from its operand and its statistics.
ValueId norm_again(const Graph& g, NodeId norm, Maker& m) {
  Builder& b = m.builder();
  const ValueId x = input(g, norm, 0);
  const Type type = g.type(x);
  const DType wide = g.type(result(g, norm, 3)).dtype;
  Shape shape(type.shape.size(), Dim(1));
  shape[1] = type.shape[1];
  auto per_channel = [&](ValueId v) {
    if (g.type(v).dtype != wide) v = m.channel(b.cast(v, wide));
    return m.channel(b.reshape(v, shape));
  };
  ValueId v = type.dtype == wide ? x : m.full(b.cast(x, wide));
  v = m.full(b.sub(v, per_channel(result(g, norm, 3))));
  v = m.full(b.mul(v, per_channel(result(g, norm, 4))));
  v = m.full(b.mul(v, per_channel(input(g, norm, 1))));
  v = m.full(b.add(v, per_channel(input(g, norm, 2))));
  return type.dtype == wide ? v : m.full(b.cast(v, type.dtype));
}

bool fuse_norm_backward(Graph& g, NodeId id, const Context& context) {
  const ValueId gradient = input(g, id, 0), x = input(g, id, 1);
  const NodeId norm = producer(g, input(g, id, 3), "batch_norm_train");
  if (!norm || input(g, norm, 0) != x || input(g, id, 3) != result(g, norm, 3) ||
      input(g, id, 4) != result(g, norm, 4) || input(g, id, 2) != input(g, norm, 1) ||
      !single_use(g, gradient))
    return false;
  const Gate gate = gate_of(g, gradient);
  if (gate.kind == Gate::none) return false;
  // By the norm's own result or by what a ReLU makes of it, which is positive where it is.
  const ValueId y = result(g, norm);
  const NodeId relu = producer(g, gate.tested, "relu");
  if (gate.tested != y && !(gate.kind == Gate::positive && relu && input(g, relu, 0) == y)) return false;
  Maker m(g, id, g.type(x).layout);
  Builder& b = m.builder();
  const ValueId again = norm_again(g, norm, m), zero = b.like(gate.gradient, 0);
  ValueId passed;
  if (gate.kind == Gate::positive) {
    passed = m.full(b.select(m.full(b.op("gt", {again, b.like(again, 0)})), gate.gradient, zero));
  } else {
    const ValueId raised = m.full(b.op("relu", {again}));
    const ValueId inner =
        m.full(b.select(m.full(b.op("ge", {again, b.like(again, 0)})), gate.gradient, zero));
    passed = m.full(b.select(m.full(b.op("le", {raised, b.like(again, 6)})), inner, zero));
  }
  g.set_input(id, 0, passed);
  std::vector<NodeId> nodes = m.nodes();
  nodes.push_back(id);
  const uint64_t stable = g[id].stable_id;
  if (try_group(g, nodes, "batch_norm_backward", context)) return true;
  // It reads what it read before; what was made above is dead then.
  for (NodeId n : g.order())
    if (g[n].stable_id == stable && g[n].is("batch_norm_backward")) {
      g.set_input(n, 0, gradient);
      break;
    }
  return false;
}

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
NodeId find(const Graph& g, uint64_t stable, std::string_view op) {
  for (NodeId n : g.order())
    if (g[n].stable_id == stable && g[n].is(op)) return n;
  return {};
}

// Makes a group of `nodes` around one node; if the target does not take it, the node reads `inputs` again.
bool group_or_restore(Graph& g, const std::vector<NodeId>& nodes, NodeId id,
                      const std::vector<ValueId>& inputs, const char* kind, const Context& context) {
  const uint64_t stable = g[id].stable_id;
  const std::string op(g[id].op->name);
  if (try_group(g, nodes, kind, context)) return true;
  id = find(g, stable, op);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i]) g.set_input(id, i, inputs[i]);
  return false;
}

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
  const NodeId again = find(g, stable, "attention");
  nodes = {again};
  for (size_t i = 0; i < 3; ++i) own_views(g, again, i, {}, nodes);
  for (NodeId n : into_rows(g, result(g, again))) nodes.push_back(n);
  if (nodes.size() > 1) group_or_restore(g, nodes, again, forward_inputs, "attention", context);
  return true;
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
