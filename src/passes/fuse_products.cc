// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse_products.h"

#include <algorithm>
#include <unordered_map>

#include "ir/activation_gradient.h"
#include "passes/group.h"
#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

constexpr const char* kKind = "product_gradient";

std::vector<NodeId> in_order(const Graph& g, const std::vector<NodeId>& nodes) {
  std::vector<NodeId> out;
  for (NodeId id : g.order())
    if (std::find(nodes.begin(), nodes.end(), id) != nodes.end()) out.push_back(id);
  return out;
}
size_t place(const Graph& g, NodeId id) {
  return static_cast<size_t>(std::find(g.order().begin(), g.order().end(), id) - g.order().begin());
}

// Whether the target takes a group of the members with these results, asked on a graph of their own: the real
// one keeps its order where it does not. Reads of `same` are reads of `as`.
bool takes(const Graph& g, const std::vector<NodeId>& members, const std::vector<ValueId>& results,
           ValueId same, ValueId as, const Context& context) {
  if (!context.oracle) return false;
  Graph trial;
  trial.symbols = g.symbols;
  Builder b(trial);
  std::unordered_map<uint32_t, ValueId> map;
  auto known = [&](ValueId v) {
    if (v == same) v = as;
    if (auto it = map.find(v.index); it != map.end()) return it->second;
    const Tensor* t = g.constant(v);
    return map[v.index] = t ? b.constant(*t) : trial.add_input(g.type(v));
  };
  std::vector<NodeId> copies;
  for (NodeId id : members) {
    const Node& n = g[id];
    std::vector<ValueId> operands;
    for (ValueId v : n.inputs) operands.push_back(v ? known(v) : ValueId{});
    copies.push_back(trial.add_node(*n.op, std::move(operands), n.attrs, n.outputs.size(), n.name));
    infer(trial, copies.back());
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      const ValueId v = n.outputs[i], copy = trial[copies.back()].outputs[i];
      trial.edit(copy).type.layout = g.type(v).layout;
      map[v.index] = copy;
      if (std::find(results.begin(), results.end(), v) != results.end()) trial.add_output(copy);
    }
  }
  return context.oracle->refuse(trial, make_group(trial, copies, kKind)).empty();
}

// --- gradients of data

bool fuse_activation(Graph& g, NodeId product, const Context& context) {
  const ValueId v = result(g, product);
  constexpr int kMostSteps = 3;  // a cast, the activation's gradient, a cast
  std::optional<ActivationGradient> found;
  ValueId end = v, last;
  for (int i = 0; i < kMostSteps && single_use(g, end); ++i) {
    end = result(g, g[end].uses[0].user);
    if (auto longer = activation_gradient(g, end); longer && longer->gradient == v) {
      found = std::move(longer);
      last = end;
    }
  }
  if (!found || g.unused(last) || !same_shape(g, v, last) || !same_shape(g, found->x, last)) return false;
  std::vector<NodeId> members = found->nodes;
  for (NodeId id : members)
    for (ValueId inner : g[id].outputs) {
      if (inner == last) continue;
      if (g.is_output(inner)) return false;
      for (Use u : g[inner].uses)
        if (std::find(members.begin(), members.end(), u.user) == members.end()) return false;
    }
  members.push_back(product);
  members = in_order(g, members);
  if (!takes(g, members, {last}, {}, {}, context)) return false;
  make_group(g, members, kKind);
  context.count("fusion/activation_gradient");
  return true;
}

// --- gradients of weights

ValueId behind_reshapes(const Graph& g, ValueId v) {
  for (NodeId id; (id = producer(g, v, "reshape"));) v = input(g, id, 0);
  return v;
}
bool sums_rows(const Graph& g, NodeId id) {
  return g[id].is("reduce_sum") && !g[id].get_bool("keep_dims") && g.type(input(g, id, 0)).rank() == 2 &&
         (g[id].get_ints("axes") == Ints{0} || g[id].get_ints("axes") == Ints{-2});
}

// A sum of rows of `v` or of another reshape of what it is of; `read` becomes what it, or its cast, reads.
NodeId sum_of(const Graph& g, ValueId v, ValueId& read) {
  std::vector<ValueId> alike{v};
  const ValueId base = behind_reshapes(g, v);
  if (base != v && g.type(base).shape == g.type(v).shape) alike.push_back(base);
  for (Use u : g[base].uses)
    if (g[u.user].is("reshape") && g.type(result(g, u.user)).shape == g.type(v).shape)
      alike.push_back(result(g, u.user));
  for (ValueId same : alike)
    for (Use u : g[same].uses) {
      read = same;
      if (sums_rows(g, u.user)) return u.user;
      if (!g[u.user].is("cast")) continue;
      const DType from = g.type(same).dtype, to = g.type(result(g, u.user)).dtype;
      if (!is_float(to) || bits(to) < bits(from)) continue;
      for (Use after : g[result(g, u.user)].uses)
        if (sums_rows(g, after.user)) return after.user;
    }
  return {};
}

bool fuse_sum(Graph& g, NodeId product, size_t operand, const Context& context) {
  const ValueId v = input(g, product, operand);
  ValueId read;
  const NodeId sum = sum_of(g, v, read);
  if (!sum || g.unused(result(g, sum))) return false;
  const NodeId cast = producer(g, input(g, sum, 0), "cast");
  const bool wider = cast && input(g, cast, 0) == read;
  std::vector<NodeId> members{product, sum};
  if (wider) members.push_back(cast);
  members = in_order(g, members);
  // Both read the one that is there first; a cast that others read stays theirs.
  const NodeId of_v = g[v].producer, of_read = g[read].producer;
  const bool read_first = !of_read || (of_v && place(g, of_read) < place(g, of_v));
  const ValueId first = read_first ? read : v, second = read_first ? v : read;
  if (!takes(g, members, {result(g, product), result(g, sum)}, second, first, context)) return false;
  g.set_input(product, operand, first);
  ValueId summed = first;
  if (wider) {
    Builder b(g, sum);
    b.set_name(g[cast].name);
    summed = b.cast(first, g.type(result(g, cast)).dtype);
  }
  g.set_input(sum, 0, summed);
  members = {product, sum};
  if (wider) members.push_back(g[summed].producer);
  make_group(g, in_order(g, members), kKind);
  context.count("fusion/bias_gradient");
  return true;
}

}  // namespace

bool fuse_products(Graph& graph, const Context& context) {
  bool changed = false;
  for (NodeId id : std::vector<NodeId>(graph.order())) {
    if (!graph[id].alive || !graph[id].is("matmul") || graph.unused(result(graph, id))) continue;
    if (graph.type(input(graph, id, 1)).rank() != 2) continue;
    if (fuse_activation(graph, id, context)) {
      changed = true;
      continue;
    }
    const bool left = graph[id].get_bool("transpose_a"), right = !graph[id].get_bool("transpose_b");
    if (graph.type(input(graph, id, 0)).rank() != 2) continue;
    changed |= (left && fuse_sum(graph, id, 0, context)) || (right && fuse_sum(graph, id, 1, context));
  }
  if (changed) remove_dead(graph);
  return changed;
}

}  // namespace pelton::passes
