// SPDX-License-Identifier: Apache-2.0
// For devices, whose kernels compute in f32 whatever they store: what lies between two products is stored in
// the lower type too, so that it moves half the bytes. What may leave the lower type's range stays as it is.
#include <array>
#include <cmath>

#include "passes/precision.h"
#include "passes/rewrite.h"
#include "tensor/float_types.h"

namespace pelton::passes {

using namespace ir;

namespace {

// Composites whose kernels keep sums in f32 and whose results are of the size of their operands, or at
// most 1.
constexpr std::array kWhole = {
    "softmax",    "log_softmax", "layer_norm", "rms_norm",   "batch_norm", "instance_norm",
    "group_norm", "gelu",        "silu",       "mish",       "hard_swish", "hard_sigmoid",
    "leaky_relu", "elu",         "selu",       "celu",       "softsign",   "prelu",
    "clamp",      "reduce_mean", "reduce_max", "reduce_min", "max_pool",   "average_pool",
    "sigmoid",    "tanh",        "relu",       "add",        "sub",        "mul",
    "div",        "neg",         "max",        "min",        "abs",        "erf"};

bool stays_in_range(const Node& n) {
  if (n.op->precision == Precision::exact)
    return n.op->family != Family::quantize && n.op->family != Family::sequence;
  return std::find(kWhole.begin(), kWhole.end(), n.op->name) != kWhole.end();
}

// The constant in the lower type; nothing if a finite value leaves its range.
std::optional<Tensor> rounded(const Tensor& t, DType low) {
  Tensor out(low, t.dims());
  const float* from = t.as<float>();
  auto to = static_cast<uint16_t*>(out.mutable_data());
  const uint16_t exponent = low == DType::f16 ? 0x7c00 : 0x7f80;
  for (int64_t i = 0; i < t.count(); ++i) {
    to[i] = low == DType::f16 ? f16_from_float(from[i]) : bf16_from_float(from[i]);
    if ((to[i] & exponent) == exponent && std::isfinite(from[i])) return std::nullopt;
  }
  return out;
}

bool spread(Graph& g, NodeId id, DType low) {
  const Node n = g[id];  // a copy: casts move the nodes
  if (!n.op->eval || n.outputs.size() != 1 || n.is("cast") || n.is("constant") || !stays_in_range(n))
    return false;
  ValueId out = n.outputs[0];
  if (!g.type(out).is_tensor() || g.type(out).dtype != DType::f32) return false;
  std::vector<ValueId> inputs;
  std::vector<std::pair<size_t, Tensor>> constants;
  bool any = false;
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    ValueId v = n.inputs[i];
    inputs.push_back(v);
    if (!v || g.type(v).dtype != DType::f32) continue;
    NodeId c = producer(g, v, "cast");
    if (c && g.type(input(g, c, 0)).dtype == low) {
      inputs[i] = input(g, c, 0);
      any = true;
    } else if (const Tensor* t = g.constant(v)) {
      std::optional<Tensor> r = rounded(*t, low);
      if (!r) return false;
      constants.emplace_back(i, std::move(*r));
      // A table, or a constant that only moves: what it yields is stored low from the start.
      any |= (n.is("gather") && i == 0 && t->count() > 1) || n.is("broadcast_to") || n.is("reshape") ||
             n.is("transpose") || n.is("tile");
    } else {
      return false;
    }
  }
  if (!any) return false;
  Builder b(g, id);
  for (auto& [i, t] : constants) inputs[i] = b.constant(std::move(t));
  return computed_low(g, id, inputs, low);
}

}  // namespace

bool spread_precision(Graph& graph, DType low, const Context& context) {
  bool changed = false;
  // In order, so that one round carries the type as far as it goes.
  for (NodeId id : std::vector<NodeId>(graph.order()))
    if (graph[id].alive && spread(graph, id, low)) {
      context.count("precision/spread");
      changed = true;
    }
  remove_dead(graph);
  return changed;
}

}  // namespace pelton::passes
