// SPDX-License-Identifier: Apache-2.0
// Activations by value: a cone of pointwise ops that depends on one value is sampled in f64 and compared with
// each known function. However the exporter spelled it, what computes the same function is the same function.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "interp/interpreter.h"
#include "passes/composites.h"
#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

// Exporters round constants to f32 or to ten digits. A limit beside a function (at least 1e-7, at most 20)
// must not pass for that: it shows far from 0 and, next to a limit of the function itself, in small
// differences.
constexpr double kTolerance = 2e-6, kFarTolerance = 1e-9, kFar = 50;
constexpr double kOverflow = 700;  // where exp() of the spelled-out form may be infinite
constexpr size_t kMaxCone = 14;

struct Known {
  std::string_view op;
  Attrs attrs;
  double (*f)(double);
  bool limited = false;     // has a limit: close to it, differences count by the value, not by 1
  double rounding = 2e-16;  // limited: what the spelled-out form may be off where the value is 0
};
double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}
const std::vector<Known>& known() {
  static const std::vector<Known> table = {
      {"gelu", {}, [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
      {"gelu",
       {{"tanh", true}},
       [](double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }},
      {"silu", {}, [](double x) { return x * sigmoid(x); }},
      {"hard_swish", {}, [](double x) { return x * std::min(std::max(x + 3, 0.0), 6.0) / 6; }},
      {"mish", {}, [](double x) { return x * std::tanh(softplus(x)); }},
      {"sigmoid", {}, sigmoid, true},
      {"softplus", {}, softplus, true},
      {"relu", {}, [](double x) { return std::max(x, 0.0); }, true, 0},
      {"tanh", {}, [](double x) { return std::tanh(x); }, true},
  };
  return table;
}

const Tensor& samples() {
  static const Tensor points = [] {
    std::vector<double> v;
    for (int i = -240; i <= 240; ++i) v.push_back(i / 16.0 + 1.0 / 97);
    for (double x : {0.0, 1e-3, -1e-3, 3.0, -3.0, 6.0, 18.5, -18.5}) v.push_back(x);
    for (double x : {50.0, 80.0, 1e3, 1e5, 1e8, 1e30}) v.insert(v.end(), {x, -x});
    auto n = static_cast<int64_t>(v.size());
    return from_doubles(DType::f64, {n}, v);
  }();
  return points;
}

bool elementwise(const Graph& g, NodeId id) {
  static const std::set<std::string_view> activations = {
      "gelu", "silu", "hard_swish", "hard_sigmoid", "clamp", "leaky_relu", "elu", "mish", "softsign"};
  const Node& n = g[id];
  if (n.outputs.size() != 1 || !is_float(g.type(n.outputs[0]).dtype)) return false;
  return (n.op->family == Family::pointwise && n.op->scalar && !n.op->scalar->yields_bool &&
          n.op->name != "select") ||
         activations.count(n.op->name);
}

// The cone from one value x to the root, in order; grows until its only non-constant leaf is x.
class Cone {
 public:
  // `position`: each node's place in the order, by node index.
  Cone(const Graph& g, NodeId root, const std::vector<uint32_t>& position)
      : g_(g), root_(root), position_(position) {
    take(root);
  }

  // Next cut with a single leaf; false when there is none within bounds.
  bool next_cut() {
    do {
      if (leaves_.empty() || nodes_.size() >= kMaxCone) return false;
      // The leaf made last dominates nothing above it: open it first.
      auto latest = *std::max_element(leaves_.begin(), leaves_.end(),
                                      [&](ValueId a, ValueId b) { return made_at(a) < made_at(b); });
      if (started_ || leaves_.size() > 1) {
        NodeId p = g_[latest].producer;
        if (!p || !elementwise(g_, p) || !(g_.type(latest).shape == g_.type(result(g_, root_)).shape))
          return false;
        leaves_.erase(latest);
        take(p);
      }
      started_ = true;
    } while (leaves_.size() != 1);
    return g_.type(*leaves_.begin()).shape == g_.type(result(g_, root_)).shape;
  }
  ValueId leaf() const { return *leaves_.begin(); }
  size_t size() const { return nodes_.size(); }

  // The function of the leaf at the sample points, in f64.
  std::optional<std::vector<double>> sample() const {
    std::map<uint32_t, Tensor> values{{leaf().index, samples()}};
    std::vector<NodeId> sorted(nodes_.begin(), nodes_.end());
    // Nodes were taken from users to producers.
    std::vector<NodeId> order;
    std::set<uint32_t> wanted;
    for (NodeId id : sorted) wanted.insert(id.index);
    for (NodeId id : g_.order())
      if (wanted.count(id.index)) order.push_back(id);
    Graph f64("cone");
    ValueId x = f64.add_input(Type::tensor(DType::f64, to_shape(samples().dims())), "x");
    std::map<uint32_t, ValueId> made{{leaf().index, x}};
    Builder b(f64);
    try {
      for (NodeId id : order) {
        std::vector<ValueId> inputs;
        for (ValueId v : g_[id].inputs) {
          if (!v)
            inputs.push_back({});
          else if (auto it = made.find(v.index); it != made.end())
            inputs.push_back(it->second);
          else
            inputs.push_back(
                b.scalar(is_float(g_.type(v).dtype) ? DType::f64 : g_.type(v).dtype, *uniform(g_, v)));
        }
        made[g_[id].outputs[0].index] = b.op(g_.op(id).name, inputs, g_[id].attrs);
      }
      f64.outputs = {made.at(result(g_, root_).index)};
      return to_doubles(interp::run(f64, {samples()}).outputs[0].tensor);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

 private:
  uint32_t made_at(ValueId v) const { return g_[v].producer ? position_[g_[v].producer.index] + 1 : 0; }
  void take(NodeId id) {
    nodes_.insert(id);
    for (ValueId v : g_[id].inputs) {
      if (!v) continue;
      if (uniform(g_, v)) continue;
      NodeId p = g_[v].producer;
      if (p && nodes_.count(p)) continue;
      leaves_.insert(v);
    }
  }
  const Graph& g_;
  NodeId root_;
  const std::vector<uint32_t>& position_;
  std::set<NodeId> nodes_;
  std::set<ValueId> leaves_;
  bool started_ = false;
};

bool agrees(const Known& k, double x, double y) {
  const double want = k.f(x), size = std::fabs(want);
  if (std::fabs(x) > kOverflow && !std::isfinite(y)) return true;
  if (!k.limited) return std::fabs(y - want) <= kTolerance * std::max(1.0, size);
  return std::fabs(y - want) <= (std::fabs(x) < kFar ? kTolerance : kFarTolerance) * size + k.rounding;
}

const Known* match(const std::vector<double>& y) {
  for (const Known& k : known()) {
    bool same = true;
    for (size_t i = 0; i < y.size() && same; ++i)
      same = agrees(k, samples().get_double(static_cast<int64_t>(i)), y[i]);
    if (same) return &k;
  }
  return nullptr;
}

}  // namespace

bool recognise_activations(Graph& graph, const Context& context) {
  bool changed = false;
  std::vector<NodeId> order(graph.order());
  std::vector<uint32_t> position;
  auto place = [&] {
    for (uint32_t i = 0; i < graph.order().size(); ++i) {
      position.resize(std::max<size_t>(position.size(), graph.order()[i].index + 1));
      position[graph.order()[i].index] = i;
    }
  };
  place();
  ElementsRead elements_read(graph);
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    if (!graph[*it].alive || !elementwise(graph, *it) || graph.unused(result(graph, *it))) continue;
    if (graph[*it].inputs.size() < 2 && !graph[*it].is("div") && !graph[*it].is("reciprocal") &&
        !graph[*it].is("log"))
      continue;
    elements_read.clear();
    Cone cone(graph, *it, position);
    while (cone.next_cut()) {
      if (cone.size() < 2 && !graph[*it].is("max")) continue;
      auto y = cone.sample();
      const Known* k = y ? match(*y) : nullptr;
      if (!k) continue;
      Builder b(graph, *it);
      b.set_name(graph[*it].name);
      replace(graph, *it, b.op(k->op, {cone.leaf()}, k->attrs));
      elements_read.forget();
      context.count(cat("composites/", k->op));
      place();
      changed = true;
      break;
    }
  }
  if (changed) remove_dead(graph);
  return changed;
}

}  // namespace pelton::passes
