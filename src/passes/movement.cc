// SPDX-License-Identifier: Apache-2.0
#include "passes/movement.h"

#include "passes/movement_pieces.h"
#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

// Reshape, broadcast, slice, pad, tile... that change nothing.
bool same_as_input(Graph& g, NodeId id, const Context&) {
  ValueId x = input(g, id, 0);
  if (!same_shape(g, x, result(g, id)) || g.type(x).layout != g.type(result(g, id)).layout) return false;
  const Node& n = g[id];
  if (n.is("slice"))
    for (int64_t step : n.get_ints("steps"))
      if (step < 0) return false;
  if (n.is("pad"))  // may crop one side and pad the other
    for (const Dim& d : n.get_dims("low"))
      if (!(d == Dim(0))) return false;
  if (n.is("slice"))
    for (const Dim& d : n.get_dims("starts"))
      if (!(d == Dim(0))) return false;
  if (n.is("reverse") && !n.get_ints("axes").empty()) return false;
  replace(g, id, x);
  return true;
}

bool reshape_chain(Graph& g, NodeId id, const Context&) {
  NodeId inner = producer(g, input(g, id, 0), "reshape");
  if (!inner) return false;
  Builder b = builder_at(g, id);
  replace(g, id, b.reshape(input(g, inner, 0), g[id].get_dims("dims")));
  return true;
}

Ints compose(const Ints& first, const Ints& second) {
  Ints out;
  for (int64_t p : second) out.push_back(first[static_cast<size_t>(p)]);
  return out;
}

bool transpose_chain(Graph& g, NodeId id, const Context&) {
  NodeId inner = producer(g, input(g, id, 0), "transpose");
  if (!inner) return false;
  Builder b = builder_at(g, id);
  replace(g, id, b.transpose(input(g, inner, 0), compose(g[inner].get_ints("perm"), g[id].get_ints("perm"))));
  return true;
}

// A permutation that keeps the order of all axes of size other than 1 moves no element.
bool transpose_of_ones(Graph& g, NodeId id, const Context&) {
  ValueId x = input(g, id, 0);
  int64_t last = -1;
  for (int64_t p : g[id].get_ints("perm")) {
    if (g.type(x).shape[static_cast<size_t>(p)] == Dim(1)) continue;
    if (p < last) return false;
    last = p;
  }
  Builder b = builder_at(g, id);
  replace(g, id, b.reshape(x, g.type(result(g, id)).shape));
  return true;
}

// transpose(f(x)) with a cheap unary f and transpose(x) cancelling further up: sink transposes through unary
// ops.
bool sink_transpose(Graph& g, NodeId id, const Context&) {
  const OpDef& op = g.op(id);
  if (op.family != Family::pointwise || !op.scalar || g[id].inputs.size() > 2) return false;
  // All full-rank inputs are transposes by one permutation, single use; the others are scalars.
  Ints perm;
  std::vector<ValueId> inputs;
  for (ValueId v : g[id].inputs) {
    if (!v) return false;
    if (NodeId t = producer(g, v, "transpose"); t && single_use(g, v)) {
      if (!perm.empty() && perm != g[t].get_ints("perm")) return false;
      perm = g[t].get_ints("perm");
      inputs.push_back(input(g, t, 0));
    } else if (element_count(g.type(v).shape) == Dim(1)) {
      inputs.push_back(v);
    } else {
      return false;
    }
  }
  if (perm.empty() || g.type(result(g, id)).rank() != static_cast<int64_t>(perm.size())) return false;
  // Only worth it if the transpose meets another one below.
  bool meets = false;
  for (Use u : g[result(g, id)].uses) meets |= g[u.user].is("transpose") || g[u.user].is("matmul");
  if (!meets) return false;
  Builder b = builder_at(g, id);
  for (ValueId& v : inputs)
    if (element_count(b.shape(v)) == Dim(1) && b.rank(v) > 0) v = b.reshape(v, {});
  replace(g, id, b.transpose(b.op(op.name, inputs, g[id].attrs), perm));
  return true;
}

// Pointwise ops broadcast by themselves.
bool implicit_broadcast(Graph& g, NodeId id, const Context&) {
  const Node& n = g[id];
  if (n.op->family != Family::pointwise || n.inputs.size() < 2) return false;
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    NodeId expand = producer(g, n.inputs[i], "broadcast_to");
    if (!expand) continue;
    ValueId small = input(g, expand, 0);
    bool covered = false;  // another operand already has the full shape
    for (size_t k = 0; k < n.inputs.size(); ++k)
      covered |= k != i && same_shape(g, n.inputs[k], result(g, id));
    if (!covered) continue;
    g.set_input(id, i, small);
    return true;
  }
  return false;
}

// Reducing axes of size 1 (or none) with an op that keeps a single element.
bool reduce_of_ones(Graph& g, NodeId id, const Context&) {
  ValueId x = input(g, id, 0);
  for (int64_t a : g[id].get_ints("axes"))
    if (!(g.type(x).shape[static_cast<size_t>(a < 0 ? a + g.type(x).rank() : a)] == Dim(1))) return false;
  Builder b = builder_at(g, id);
  replace(g, id, b.reshape(x, g.type(result(g, id)).shape));
  return true;
}

// A swap of the last two axes becomes a flag of the product.
bool matmul_transpose(Graph& g, NodeId id, const Context&) {
  const Node& n = g[id];
  for (size_t i : {size_t{0}, size_t{1}}) {
    NodeId t = producer(g, n.inputs[i], "transpose");
    if (!t) continue;
    const Ints& perm = g[t].get_ints("perm");
    size_t r = perm.size();
    if (r < 2) continue;
    bool swap = perm[r - 1] == static_cast<int64_t>(r) - 2 && perm[r - 2] == static_cast<int64_t>(r) - 1;
    for (size_t k = 0; k + 2 < r; ++k) swap &= perm[k] == static_cast<int64_t>(k);
    if (!swap) continue;
    std::vector<ValueId> inputs = n.inputs;
    inputs[i] = input(g, t, 0);
    Attrs attrs = n.attrs;
    const char* key = i ? "transpose_b" : "transpose_a";
    attrs[key] = !n.get_bool(key);
    Builder b = builder_at(g, id);
    replace(g, id, b.op("matmul", inputs, attrs));
    return true;
  }
  return false;
}

const Rule kRules[] = {
    {"movement/same", {"reshape", "broadcast_to", "slice", "pad", "tile", "reverse"}, same_as_input},
    {"movement/reshape_chain", {"reshape"}, reshape_chain},
    {"movement/transpose_chain", {"transpose"}, transpose_chain},
    {"movement/transpose_of_ones", {"transpose"}, transpose_of_ones},
    {"movement/sink_transpose", {}, sink_transpose},
    {"movement/implicit_broadcast", {}, implicit_broadcast},
    {"movement/concat_one", {"concat"}, concat_one},
    {"movement/concat_of_concat", {"concat"}, concat_of_concat},
    {"movement/concat_of_slices", {"concat"}, concat_of_slices},
    {"movement/slice_chain", {"slice"}, slice_chain},
    {"movement/gather_constant", {"gather"}, gather_constant},
    {"movement/reduce_of_ones",
     {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"},
     reduce_of_ones},
    {"movement/matmul_transpose", {"matmul"}, matmul_transpose},
    {"movement/pad_into_conv", {"conv"}, pad_into_conv},
    {"movement/add_of_pads", {"add"}, add_of_pads},
};

}  // namespace

bool movement(Graph& graph, const Context& context) {
  return apply_rules(graph, kRules, context);
}

}  // namespace pelton::passes
