// SPDX-License-Identifier: Apache-2.0
#include "ir/activation_gradient.h"

#include <algorithm>
#include <cmath>

#include "ir/gradient.h"

namespace pelton::ir {
namespace {

// What a rule makes of one activation.
struct Rule {
  ActivationGradient::Kind kind;
  Graph graph;
  ValueId x, gradient, result;
};

Rule rule_of(ActivationGradient::Kind kind) {
  Rule r;
  r.kind = kind;
  const ValueId x = r.graph.add_input(Type::tensor(DType::f32, {1}));
  r.gradient = r.graph.add_input(Type::tensor(DType::f32, {1}));
  Builder b(r.graph);
  Attrs attrs;
  if (kind == ActivationGradient::gelu_tanh) attrs["tanh"] = true;
  const ValueId y = b.op(kind == ActivationGradient::relu ? "relu" : "gelu", {x}, attrs);
  r.x = kind == ActivationGradient::relu ? y : x;  // what the rule reads
  GradientContext c(r.graph, r.graph[y].producer, {r.gradient}, {true});
  r.graph[r.graph[y].producer].op->gradient(c);
  r.result = c.input_grads()[0];
  return r;
}

const std::vector<Rule>& rules() {
  static const auto* all =
      new std::vector<Rule>{rule_of(ActivationGradient::relu), rule_of(ActivationGradient::gelu_tanh)};
  return *all;
}

bool commutes(std::string_view op_name) {
  return op_name == "add" || op_name == "mul";
}

// One try to read v as a rule's result. Values of the graph are looked at behind casts to wider floats.
class Matcher {
 public:
  Matcher(const Rule& rule, const Graph& graph) : r_(rule), g_(graph) {}

  std::optional<ActivationGradient> match(ValueId v) {
    // The result may be rounded, what lies inside may not.
    if (const NodeId id = g_[v].producer; id && g_[id].is("cast")) {
      nodes_.push_back(id);
      v = g_[id].inputs[0];
    }
    if (!same(r_.result, v) || !x_ || !gradient_) return std::nullopt;
    std::sort(nodes_.begin(), nodes_.end());
    nodes_.erase(std::unique(nodes_.begin(), nodes_.end()), nodes_.end());
    return ActivationGradient{r_.kind, gradient_, x_, nodes_};
  }

 private:
  bool same(ValueId rule, ValueId v) {
    if (const Tensor* wanted = r_.graph.constant(rule)) return equal_constants(*wanted, v);
    const size_t nodes = nodes_.size();
    v = behind_casts(v);
    if (rule == r_.x) return bind(x_, v);
    if (rule == r_.gradient) return bind(gradient_, v);
    const Node& want = r_.graph[r_.graph[rule].producer];
    const NodeId id = g_[v].producer;
    if (id && g_[id].op == want.op && g_[id].inputs.size() == want.inputs.size() &&
        (operands(want, g_[id], false) || (commutes(want.op->name) && operands(want, g_[id], true)))) {
      nodes_.push_back(id);
      return true;
    }
    nodes_.resize(nodes);
    return false;
  }
  bool operands(const Node& want, const Node& n, bool swapped) {
    const ValueId x = x_, gradient = gradient_;
    const size_t nodes = nodes_.size(), count = n.inputs.size();
    for (size_t i = 0; i < count; ++i)
      if (!same(want.inputs[i], n.inputs[swapped ? count - 1 - i : i])) {
        x_ = x;
        gradient_ = gradient;
        nodes_.resize(nodes);
        return false;
      }
    return true;
  }
  bool equal_constants(const Tensor& wanted, ValueId v) {
    const Tensor* t = g_.constant(v);
    if (!t || t->count() != 1) return false;
    const double want = wanted.get_double(0), is = t->get_double(0);
    // Folded and rounded by passes.
    return std::abs(want - is) <= 1e-6 * std::abs(want);
  }
  ValueId behind_casts(ValueId v) {
    for (NodeId id; (id = g_[v].producer) && g_[id].is("cast"); v = g_[id].inputs[0]) {
      const DType from = g_.type(g_[id].inputs[0]).dtype;
      if (!is_float(from) || bits(from) >= bits(g_.type(v).dtype)) break;
      nodes_.push_back(id);
    }
    return v;
  }
  static bool bind(ValueId& name, ValueId v) {
    if (!name) name = v;
    return name == v;
  }

  const Rule& r_;
  const Graph& g_;
  ValueId x_, gradient_;
  std::vector<NodeId> nodes_;
};

}  // namespace

std::optional<ActivationGradient> activation_gradient(const Graph& graph, ValueId v) {
  for (const Rule& rule : rules())
    if (auto found = Matcher(rule, graph).match(v)) return found;
  return std::nullopt;
}

}  // namespace pelton::ir
