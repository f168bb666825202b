// SPDX-License-Identifier: Apache-2.0
#include "onnx/import/constant_value.h"

#include "ir/eval.h"
#include "ir/op.h"

namespace pelton::onnx {
namespace {

constexpr int kMaxDepth = 48, kMaxSteps = 256;
constexpr int64_t kMaxElements = 4096, kMaxOperand = 1 << 20;

struct Search {
  const ir::Graph& graph;
  KnownInputs* known;
  int steps = 0;

  std::optional<Tensor> known_contents(const ir::Value& v) const {
    if (!v.contents || !v.type.is_tensor()) return {};
    Ints numbers;
    for (const Dim& d : *v.contents) {
      if (!d.is_const()) return {};
      numbers.push_back(d.value());
    }
    auto dims = as_dims(v.type.shape);
    if (!dims || element_count(*dims) != static_cast<int64_t>(numbers.size())) return {};
    return from_ints(v.type.dtype, *dims, numbers);
  }

  using Ints = ir::Ints;

  std::optional<Tensor> value(ir::ValueId id, int depth) {
    if (const Tensor* t = graph.constant(id)) {
      if (depth && t->count() > kMaxOperand) return {};
      return *t;
    }
    const ir::Value& v = graph[id];
    if (auto t = known_contents(v)) return t;
    if (!v.producer && known)
      if (auto it = known->values.find(id); it != known->values.end()) {
        known->used.insert(id);
        return it->second;
      }
    if (!v.producer || depth > kMaxDepth || ++steps > kMaxSteps) return {};
    const ir::Node& node = graph[v.producer];
    if (!node.op->eval || node.op->effects != ir::Effects::pure || node.op->family == ir::Family::control ||
        node.op->family == ir::Family::custom)
      return {};
    for (ir::ValueId o : node.outputs) {
      const ir::Type& t = graph.type(o);
      auto dims = t.is_tensor() ? as_dims(t.shape) : std::nullopt;
      if (!dims || element_count(*dims) > kMaxElements) return {};
    }
    std::vector<ir::HostValue> inputs, outputs(node.outputs.size());
    for (ir::ValueId i : node.inputs) {
      if (!i) {
        inputs.emplace_back();
        continue;
      }
      if (!graph.type(i).is_tensor()) return {};
      auto t = value(i, depth + 1);
      if (!t) return {};
      inputs.emplace_back(*t);
    }
    const SymbolValues symbols;
    const std::function<std::vector<ir::HostValue>(const ir::Graph&, std::vector<ir::HostValue>)> run;
    ir::EvalContext context{graph, node, inputs, outputs, symbols, {}, run};
    try {
      node.op->eval(context);
    } catch (const Error&) {
      return {};  // it fails at run time too, with the values at hand
    }
    const ir::HostValue& result = outputs[v.result];
    if (result.kind != ir::TypeKind::tensor || !result.tensor.defined()) return {};
    return result.tensor;
  }
};

}  // namespace

std::optional<Tensor> constant_value(const ir::Graph& graph, ir::ValueId value, KnownInputs* known) {
  return Search{graph, known}.value(value, 0);
}

}  // namespace pelton::onnx
