// SPDX-License-Identifier: Apache-2.0
#include "passes/precision.h"

#include <algorithm>

#include "passes/rewrite.h"
#include "passes/weight_names.h"

namespace pelton::passes {

using namespace ir;

namespace {

// Recurrent layers compute low where they run as they are; their steps, split, would be rounded one by one.
bool is_recurrent(const Graph& g, NodeId id, const Context& context) {
  const Node& n = g[id];
  return (n.is("lstm") || n.is("gru") || n.is("rnn")) && context.target.kind != device::Kind::cpu &&
         context.oracle && context.oracle->refuse(g, id).empty() && g.type(n.outputs[0]).dtype == DType::f32;
}

bool is_anchor(const Graph& g, NodeId id, const Context& context) {
  if (is_recurrent(g, id, context)) return true;
  const Node& n = g[id];
  return (n.is("conv") || n.is("matmul") || n.is("conv_transpose") || n.is("attention") ||
          n.is("conv_backward_data") || n.is("conv_backward_weights") ||
          (n.is("attention_backward") && context.target.kind != device::Kind::cpu)) &&
         g.type(n.outputs[0]).dtype == DType::f32;
}

// Statistics of the forward pass stay as they are.
bool stays_wide(const Node& n, size_t input) {
  return n.is("attention_backward") && input == 5;
}

// The anchor computes in `low`; its result returns to f32.
void lower(Graph& g, NodeId id, DType low) {
  Builder b(g, id);
  b.set_name(g[id].name);
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < g[id].inputs.size(); ++i) {
    ValueId v = g[id].inputs[i];
    inputs.push_back(v && g.type(v).dtype == DType::f32 && !stays_wide(g[id], i) ? b.cast(v, low) : v);
  }
  std::vector<ValueId> results = b.ops(g.op(id).name, inputs, g[id].attrs, g[id].outputs.size());
  for (size_t i = 0; i < results.size(); ++i)
    g.replace_uses(g[id].outputs[i],
                   g.type(results[i]).dtype == low ? b.cast(results[i], DType::f32) : results[i]);
}

// An op between casts computes wide inside and rounds once, so on inputs that were `low` already and with
// users that all round to `low` it may as well take and yield `low`.
bool narrow(Graph& g, NodeId id, DType low) {
  const Node& n = g[id];
  if (!n.op->eval || n.outputs.size() != 1 || n.op->family == Family::control ||
      n.op->family == Family::custom || n.is("cast") || n.is("constant"))
    return false;
  ValueId out = n.outputs[0];
  if (g.type(out).dtype != DType::f32 || g[out].uses.empty() || g.is_output(out)) return false;
  for (Use u : g[out].uses)
    if (!g[u.user].is("cast") || g[u.user].get_dtype("to") != low) return false;
  bool any = false;
  std::vector<ValueId> inputs = n.inputs;
  std::vector<std::pair<size_t, Tensor>> constants;  // by input
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId v = inputs[i];
    if (!v || g.type(v).dtype != DType::f32) continue;
    NodeId c = producer(g, v, "cast");
    if (c && g.type(input(g, c, 0)).dtype == low) {
      inputs[i] = input(g, c, 0);
      any = true;
    } else if (const Tensor* t = g.constant(v)) {
      // Only constants that survive the rounding.
      Tensor rounded = from_doubles(low, t->dims(), to_doubles(*t));
      if (t->count() > (1 << 16) || to_doubles(rounded) != to_doubles(*t)) return false;
      constants.emplace_back(i, std::move(rounded));
    } else {
      return false;
    }
  }
  if (!any) return false;
  const std::vector<ValueId> wide = inputs;
  Builder b(g, id);
  for (auto& [i, rounded] : constants) inputs[i] = b.constant(std::move(rounded));
  if (!computed_low(g, id, inputs, low)) return false;
  for (const auto& [i, rounded] : constants) forget_names(g, wide[i]);
  return true;
}

}  // namespace

bool covered(std::string_view name, const std::set<std::string>& names) {
  if (names.empty()) return false;
  for (size_t end = name.size(); end != name.npos && end > 0; end = name.find_last_of("/.", end - 1))
    if (names.count(std::string(name.substr(0, end)))) return true;
  return false;
}

bool computed_low(Graph& g, NodeId id, const std::vector<ValueId>& inputs, DType low) {
  const Node n = g[id];  // a copy: building moves the nodes
  Builder b(g, id);
  b.set_name(n.name);
  ValueId y;
  try {
    y = b.op(n.op->name, inputs, n.attrs);
  } catch (const Error&) {
    return false;  // the op does not take the type
  }
  if (g.type(y).dtype != low) return false;
  g.replace_uses(n.outputs[0], b.cast(y, DType::f32));
  return true;
}

namespace {

[[noreturn]] void refuse_precision(const std::string& precision, const device::Target& target) {
  std::string what = cat("unknown precision '", precision, "'");
  if (precision == "tf32") what = cat("tf32 is a mode of GPUs, not of ", target.name);
  if (precision == "best" || precision.find(',') != precision.npos)
    what = cat("'", precision, "' is a choice that only a compilation of a model makes");
  if (precision == "fp8") what = "precision fp8 is not built yet";
  fail(ErrorCode::usage, what, "--precision",
       target.kind == device::Kind::cuda ? "use fp32, tf32, bf16 or fp16" : "use fp32, bf16, fp16 or int8");
}

}  // namespace

bool precision(Graph& graph, const std::string& precision, const Context& context,
               const std::set<std::string>& full) {
  if (precision == "fp32") return false;
  // A property of the kernels, not of the graph (Target::tf32).
  if (precision == "tf32" && context.target.kind == device::Kind::cuda) return false;
  DType low;
  if (precision == "bf16")
    low = DType::bf16;
  else if (precision == "fp16")
    low = DType::f16;
  else
    refuse_precision(precision, context.target);
  bool changed = false;
  for (NodeId id : std::vector<NodeId>(graph.order()))
    if (is_anchor(graph, id, context) && !covered(graph[id].name, full)) {
      lower(graph, id, low);
      context.count("precision/lower");
      changed = true;
    }
  remove_dead(graph);
  if (changed && context.target.kind != device::Kind::cpu) spread_precision(graph, low, context, full);
  for (int round = 0; changed && round < 64; ++round) {
    bool fired = false;
    for (NodeId id : std::vector<NodeId>(graph.order()))
      if (graph[id].alive && narrow(graph, id, low)) {
        context.count("precision/narrow");
        fired = true;
      }
    remove_dead(graph);
    if (!fired) break;
  }
  return changed;
}

}  // namespace pelton::passes
