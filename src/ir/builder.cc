// SPDX-License-Identifier: Apache-2.0
#include "ir/builder.h"

#include <algorithm>

#include "ir/op.h"

namespace pelton::ir {

std::vector<ValueId> Builder::ops(std::string_view op_name, std::vector<ValueId> inputs, Attrs attrs,
                                  size_t output_count) {
  while (!inputs.empty() && !inputs.back()) inputs.pop_back();
  NodeId id =
      graph_.add_node(pelton::ir::op(op_name), std::move(inputs), std::move(attrs), output_count, name_, at_);
  infer(graph_, id);
  return graph_[id].outputs;
}

ValueId Builder::op(std::string_view op_name, std::vector<ValueId> inputs, Attrs attrs) {
  return ops(op_name, std::move(inputs), std::move(attrs), 1)[0];
}

ValueId Builder::constant(Tensor value) {
  return op("constant", {}, {{"value", std::move(value)}});
}
ValueId Builder::scalar(DType dtype, double value) {
  if (dtype == DType::string)
    fail(ErrorCode::bad_type, "computes with text where numbers belong", node_name());
  return constant(Tensor::full(dtype, {}, value));
}
ValueId Builder::ints(const Ints& values) {
  return constant(Tensor::from<int64_t>({static_cast<int64_t>(values.size())}, values));
}

ValueId Builder::cast(ValueId x, DType to) {
  return dtype(x) == to ? x : op("cast", {x}, {{"to", to}});
}
ValueId Builder::reshape(ValueId x, Shape to) {
  return shape(x) == to ? x : op("reshape", {x}, {{"dims", std::move(to)}});
}
ValueId Builder::transpose(ValueId x, Ints perm) {
  bool identity = static_cast<int64_t>(perm.size()) == rank(x);
  for (size_t d = 0; d < perm.size(); ++d) identity &= perm[d] == static_cast<int64_t>(d);
  if (identity) return x;
  return op("transpose", {x}, {{"perm", std::move(perm)}});
}
ValueId Builder::unsqueeze(ValueId x, const Ints& axes) {
  Shape to = shape(x);
  Ints sorted = axes;
  int64_t rank = static_cast<int64_t>(to.size() + axes.size());
  for (int64_t& a : sorted) a = a < 0 ? a + rank : a;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t a : sorted) {
    PELTON_CHECK(a >= 0 && a <= static_cast<int64_t>(to.size()), "unsqueeze axes ", axes);
    to.insert(to.begin() + a, Dim(1));
  }
  return reshape(x, std::move(to));
}
ValueId Builder::broadcast_to(ValueId x, Shape to) {
  return shape(x) == to ? x : op("broadcast_to", {x}, {{"dims", std::move(to)}});
}
ValueId Builder::reduce(std::string_view op_name, ValueId x, Ints axes, bool keep_dims) {
  return op(op_name, {x}, {{"axes", std::move(axes)}, {"keep_dims", keep_dims}});
}

bool expand(Graph& graph, NodeId id) {
  if (!graph.op(id).decompose) return false;
  const Node node = graph[id];  // a copy: the graph grows meanwhile
  Builder b(graph, id);
  b.set_name(node.name);
  std::vector<ValueId> results = node.op->decompose(b, node);
  if (results.empty()) return false;
  PELTON_CHECK(results.size() == node.outputs.size(), graph.describe(id), " decomposes into ", results.size(),
               " results");
  for (size_t i = 0; i < results.size(); ++i) graph.replace_uses(node.outputs[i], results[i]);
  graph.remove(id);
  return true;
}

std::vector<ValueId> inline_graph(Builder& b, const Graph& body, const std::vector<ValueId>& inputs) {
  PELTON_CHECK(inputs.size() == body.inputs.size() && body.slots.empty(), "graph ", body.name,
               " inlined with ", inputs.size(), " inputs");
  std::vector<ValueId> map(body.value_count());
  for (size_t i = 0; i < inputs.size(); ++i) map[body.inputs[i].index] = inputs[i];
  for (NodeId id : body.order()) {
    const Node& n = body[id];
    std::vector<ValueId> operands;
    for (ValueId v : n.inputs) operands.push_back(v ? map[v.index] : ValueId{});
    if (!n.name.empty()) b.set_name(n.name);
    std::vector<ValueId> results = b.ops(n.op->name, std::move(operands), n.attrs, n.outputs.size());
    for (size_t i = 0; i < results.size(); ++i) map[n.outputs[i].index] = results[i];
  }
  std::vector<Fact>& checks = b.graph().checks;
  for (const Fact& f : body.checks) {
    auto same = [&](const Fact& other) {
      return f.relation == other.relation && f.left == other.left && f.right == other.right;
    };
    if (std::none_of(checks.begin(), checks.end(), same)) checks.push_back(f);
  }
  std::vector<ValueId> outputs;
  for (ValueId v : body.outputs) outputs.push_back(map[v.index]);
  return outputs;
}

}  // namespace pelton::ir
