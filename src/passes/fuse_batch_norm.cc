// SPDX-License-Identifier: Apache-2.0
// Batch norm in training with what follows it, and its gradient behind that of an activation.
#include <algorithm>

#include "passes/rewrite.h"
#include "passes/training_groups.h"

namespace pelton::passes {

using namespace ir;

namespace {

bool is_activation(const Node& n) {
  static constexpr std::string_view kNames[] = {"relu",    "clamp",      "silu",        "gelu",
                                                "sigmoid", "hard_swish", "hard_sigmoid"};
  return std::find(std::begin(kNames), std::end(kNames), n.op->name) != std::end(kNames);
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

}  // namespace

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
    chain = {find_node(g, stable, "batch_norm_train")};
    if (!chain[0]) return false;
    while (chain.size() < left) chain.push_back(g[result(g, chain.back())].uses[0].user);
  }
  return false;
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
  // If that fails, what was made above is dead.
  return group_or_restore(g, nodes, id, {gradient}, "batch_norm_backward", context);
}

}  // namespace pelton::passes
