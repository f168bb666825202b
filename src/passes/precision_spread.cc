// SPDX-License-Identifier: Apache-2.0
// For devices, whose kernels compute in f32 whatever they store: what lies between two products is stored in
// the lower type too, so that it moves half the bytes. What may leave the lower type's range stays as it is.
#include <algorithm>
#include <array>

#include "passes/precision.h"
#include "passes/rewrite.h"
#include "tensor/narrow.h"

namespace pelton::passes {

using namespace ir;

namespace {

// Composites whose kernels keep sums in f32 and whose results are of the size of their operands, or at
// most 1.
constexpr std::array kWhole = {"softmax",
                               "log_softmax",
                               "layer_norm",
                               "rms_norm",
                               "batch_norm",
                               "instance_norm",
                               "group_norm",
                               "gelu",
                               "silu",
                               "mish",
                               "hard_swish",
                               "hard_sigmoid",
                               "leaky_relu",
                               "elu",
                               "selu",
                               "celu",
                               "softsign",
                               "prelu",
                               "clamp",
                               "resample",
                               "reduce_mean",
                               "reduce_max",
                               "reduce_min",
                               "max_pool",
                               "avg_pool",
                               "sigmoid",
                               "tanh",
                               "relu",
                               "add",
                               "sub",
                               "mul",
                               "div",
                               "neg",
                               "max",
                               "min",
                               "abs",
                               "erf",
                               "max_pool_backward",
                               "avg_pool_backward"};

// Ops of several results whose first one has the type of their data, the operands named here; the others keep
// theirs.
struct DataOp {
  std::string_view name;
  size_t data;  // the first so many operands
};
constexpr std::array kDataOps = {DataOp{"layer_norm", 1},
                                 DataOp{"rms_norm", 1},
                                 DataOp{"batch_norm_train", 1},
                                 DataOp{"group_norm", 1},
                                 DataOp{"layer_norm_backward", 2},
                                 DataOp{"rms_norm_backward", 2},
                                 DataOp{"batch_norm_backward", 2},
                                 DataOp{"group_norm_backward", 2},
                                 DataOp{"dropout", 1}};

// A parameter, as it is or as a view of it.
bool is_parameter(const Graph& g, ValueId v) {
  for (;;) {
    const NodeId from = g[v].producer;
    if (!from) break;
    if (!g[from].is("reshape") && !g[from].is("slice") && !g[from].is("transpose")) return false;
    v = g[from].inputs[0];
  }
  return std::any_of(g.slots.begin(), g.slots.end(),
                     [&](const Slot& s) { return s.kind == SlotKind::parameter && s.old_value == v; });
}

// v in `low` if it is a cast of that type, else none.
ValueId before_cast(const Graph& g, ValueId v, DType low) {
  const NodeId c = producer(g, v, "cast");
  return c && g.type(input(g, c, 0)).dtype == low ? input(g, c, 0) : ValueId{};
}

bool spread_data(Graph& g, NodeId id, size_t data, DType low) {
  const Node n = g[id];  // a copy: casts move the nodes
  if (g.type(n.outputs[0]).dtype != DType::f32) return false;
  std::vector<ValueId> inputs = n.inputs;
  for (size_t i = 0; i < data; ++i) {
    inputs[i] = before_cast(g, inputs[i], low);
    if (!inputs[i]) return false;
  }
  Builder b(g, id);
  b.set_name(n.name);
  std::vector<ValueId> results = b.ops(n.op->name, inputs, n.attrs, n.outputs.size());
  g.edit(g[results[0]].producer).stable_id = n.stable_id;
  for (size_t i = 0; i < results.size(); ++i) {
    bool narrowed = g.type(results[i]).dtype != g.type(n.outputs[i]).dtype;
    g.replace_uses(n.outputs[i], narrowed ? b.cast(results[i], g.type(n.outputs[i]).dtype) : results[i]);
  }
  return true;
}

bool stays_in_range(const Node& n) {
  if (n.op->precision == Precision::exact)
    return n.op->family != Family::quantize && n.op->family != Family::sequence;
  return std::find(kWhole.begin(), kWhole.end(), n.op->name) != kWhole.end();
}

bool spread(Graph& g, NodeId id, DType low) {
  for (const DataOp& d : kDataOps)
    if (g[id].is(d.name)) return spread_data(g, id, d.data, low);
  const Node n = g[id];  // a copy: casts move the nodes
  if (!n.op->eval || n.outputs.size() != 1 || n.is("cast") || n.is("constant") || !stays_in_range(n))
    return false;
  ValueId out = n.outputs[0];
  if (!g.type(out).is_tensor() || g.type(out).dtype != DType::f32) return false;
  std::vector<ValueId> inputs;
  std::vector<size_t> rounded;  // constants and parameters
  bool any = false;
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    ValueId v = n.inputs[i];
    inputs.push_back(v);
    if (!v || g.type(v).dtype != DType::f32) continue;
    if (ValueId before = before_cast(g, v, low)) {
      inputs[i] = before;
      any = true;
    } else if (is_parameter(g, v)) {
      rounded.push_back(i);
      any |= (n.is("gather") || n.is("pad")) && i == 0;
    } else if (const Tensor* t = g.constant(v)) {
      if (!fits_in(*t, low)) return false;
      rounded.push_back(i);
      // A table, or a constant that only moves: what it yields is stored low from the start.
      any |= (n.is("gather") && i == 0 && t->count() > 1) || n.is("broadcast_to") || n.is("reshape") ||
             n.is("transpose") || n.is("tile");
    } else {
      return false;
    }
  }
  if (!any) return false;
  Builder b(g, id);
  for (size_t i : rounded) inputs[i] = b.cast(inputs[i], low);
  return computed_low(g, id, inputs, low);
}

}  // namespace

bool spread_precision(Graph& graph, DType low, const Context& context, const std::set<std::string>& full) {
  bool changed = false;
  // In order, so that one round carries the type as far as it goes.
  for (NodeId id : std::vector<NodeId>(graph.order()))
    if (graph[id].alive && !covered(graph[id].name, full) && spread(graph, id, low)) {
      context.count("precision/spread");
      changed = true;
    }
  remove_dead(graph);
  return changed;
}

}  // namespace pelton::passes
