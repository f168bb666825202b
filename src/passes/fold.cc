// SPDX-License-Identifier: Apache-2.0
#include "passes/fold.h"

#include <algorithm>

#include "interp/interpreter.h"
#include "passes/rewrite.h"
#include "passes/specialise.h"
#include "passes/weight_names.h"

namespace pelton::passes {

using namespace ir;

namespace {

bool foldable(const Graph& g, NodeId id) {
  const Node& n = g[id];
  const OpDef& op = *n.op;
  if (op.name == "constant" || op.effects != Effects::pure || !op.eval || op.family == Family::custom)
    return false;
  for (ValueId v : n.inputs)
    if (v && !g.constant(v)) return false;
  // Symbols in attributes have no value yet.
  for (const auto& [key, value] : n.attrs)
    if (auto dims = std::get_if<Shape>(&value))
      for (const Dim& d : *dims)
        if (!d.is_const()) return false;
  for (ValueId v : n.outputs)
    if (!g.type(v).is_tensor()) return false;
  return true;
}

int64_t bytes_of(const Tensor& t) {
  return t.dtype() == DType::string ? t.count() : t.bytes();
}

// What folding would produce, estimated before it is computed; -1: unknown.
int64_t result_bytes(const Graph& g, NodeId id) {
  int64_t total = 0;
  for (ValueId v : g[id].outputs) {
    auto dims = as_dims(g.type(v).shape);
    if (!dims) return -1;
    total += g.type(v).dtype == DType::string ? element_count(*dims)
                                              : byte_size(g.type(v).dtype, element_count(*dims));
  }
  return total;
}

// `folded` serves all nodes of the kind of `id` that have the same constant for operand.
void replace_alike(Graph& g, NodeId id, ValueId folded) {
  const OpDef* op = g[id].op;
  const Attrs attrs = g[id].attrs;
  const auto same = [](const auto& a, const auto& b) {
    return a.first == b.first && equal(a.second, b.second);
  };
  for (const Use u : std::vector<Use>(g[g[id].inputs[0]].uses)) {
    const Node& n = g[u.user];
    if (n.op == op && std::equal(n.attrs.begin(), n.attrs.end(), attrs.begin(), attrs.end(), same))
      g.replace_uses(n.outputs[0], folded);
  }
}

// A transpose that new values of a weight can follow (runtime/refit.h).
bool swaps_axes(const Graph& g, NodeId id) {
  return g[id].is("transpose") && g[id].get_ints("perm") == Ints{1, 0} &&
         bits(g.type(g[id].outputs[0]).dtype) >= 8;
}

// Whether somebody reads v besides nodes that are folded already.
bool stays(const Graph& g, ValueId v) {
  const auto& uses = g[v].uses;
  return g.is_output(v) || std::any_of(uses.begin(), uses.end(), [&](Use u) {
           const auto& results = g[u.user].outputs;
           return std::any_of(results.begin(), results.end(), [&](ValueId r) { return !g.unused(r); });
         });
}

// A cast that new values of a weight can follow: one rounding of f32 (runtime/refit.h).
bool rounds(const Graph& g, NodeId id) {
  if (!g[id].is("cast")) return false;
  const DType to = g.type(g[id].outputs[0]).dtype;
  return g.type(g[id].inputs[0]).dtype == DType::f32 && (to == DType::f16 || to == DType::bf16);
}

// New weights find a rounded or transposed constant by the name of the one that it was made of, which is its
// own name where that one goes. Whatever else is made of a weight would keep its old values: no constant has
// the weight's names then.
void pass_names_on(Graph& g, NodeId id, ValueId folded) {
  const bool cast = rounds(g, id);
  for (ValueId v : std::vector<ValueId>(g[id].inputs)) {
    if (!v) continue;
    if (!cast && !swaps_axes(g, id)) {
      forget_names(g, v);
      continue;
    }
    std::string own;
    if (cast && !stays(g, v)) own.swap(g.edit(v).name);
    add_names(g, v, folded, !cast);
    if (!own.empty()) g.edit(folded).name = own;
  }
}

bool fold_node(Graph& g, NodeId id, int64_t max_bytes) {
  if (!foldable(g, id)) return false;
  int64_t input_bytes = 0;
  std::vector<HostValue> inputs;
  for (ValueId v : g[id].inputs) {
    const Tensor* t = g.constant(v);
    inputs.emplace_back(t ? *t : Tensor());
    if (t) input_bytes += bytes_of(*t);
  }
  int64_t bytes = 0;
  try {
    bytes = result_bytes(g, id);
  } catch (const Error& e) {  // a size that does not exist
    throw e.within(g.describe(id));
  }
  if (bytes > max_bytes && bytes > input_bytes) return false;
  std::vector<HostValue> results;
  try {
    results = interp::run_node(g, id, inputs);
  } catch (const Error&) {
    return false;  // an error at run time stays one
  }
  Builder b(g, id);
  b.set_name(g[id].name);
  for (size_t i = 0; i < results.size(); ++i) {
    ValueId old = g[id].outputs[i];
    if (g.unused(old)) continue;
    ValueId constant = b.constant(results[i].tensor);
    if (g[id].is("cast") || swaps_axes(g, id)) replace_alike(g, id, constant);
    g.replace_uses(old, constant);
    pass_names_on(g, id, constant);
  }
  return true;
}

// Integer results whose symbolic value is known need not be computed from their operands.
bool fold_contents(Graph& g, NodeId id) {
  const Node& n = g[id];
  if (n.is("constant") || n.is("contents") || n.op->effects != Effects::pure || n.outputs.size() != 1)
    return false;
  ValueId v = n.outputs[0];
  if (!g[v].contents || g.unused(v)) return false;
  if (n.inputs.empty()) return false;
  // A reshape or cast of a contents node is as good as it gets.
  if ((n.is("reshape") || n.is("cast")) && n.inputs[0] && producer(g, n.inputs[0], "contents")) return false;
  Contents contents = *g[v].contents;
  Type type = g.type(v);
  Builder b(g, id);
  b.set_name(n.name);
  ValueId x;
  if (std::all_of(contents.begin(), contents.end(), [](const Dim& d) { return d.is_const(); })) {
    std::vector<int64_t> values;
    for (const Dim& d : contents) values.push_back(d.value());
    auto dims = as_dims(type.shape);
    if (!dims || element_count(*dims) != static_cast<int64_t>(values.size())) return false;
    x = b.constant(from_ints(type.dtype, *dims, values));
  } else {
    x = b.op("contents", {}, {{"dims", contents}});
    x = b.reshape(b.cast(x, type.dtype), type.shape);
  }
  g.replace_uses(v, x);
  return true;
}

}  // namespace

bool fold(Graph& graph, const Context& context, int64_t max_bytes) {
  bool changed = false;
  for (NodeId id : std::vector<NodeId>(graph.order())) {
    if (fold_contents(graph, id)) {
      context.count("fold/contents");
      changed = true;
    } else if (fold_node(graph, id, max_bytes)) {
      context.count("fold/constant");
      changed = true;
    }
  }
  if (changed) {
    remove_dead(graph);
    infer_again(graph);
  }
  return changed;
}

}  // namespace pelton::passes
