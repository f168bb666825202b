// SPDX-License-Identifier: Apache-2.0
// Regions fused by the compiler: inference, the nodes they stand for, and the work that those do.
#include <optional>
#include <set>

#include "ir/builder.h"
#include "ir/ops/control_infer.h"

namespace pelton::ir {

void infer_fused(InferContext& c) {
  GraphPtr body = with_input_types(c, graph_attr(c, "body"), input_types(c, 0, c.input_count()), "C1");
  set_graph(c, "body", body);
  require_results(c, *body, c.node.outputs.size(), "C1");
  for (size_t i = 0; i < c.node.outputs.size(); ++i)
    c.output(i, seen_outside(c, i, body->type(body->outputs[i]), *body));
}

std::vector<ValueId> decompose_fused(Builder& b, const Node& n) {
  return inline_graph(b, n.get_graph("body"), n.inputs);
}

double fused_flops(const Graph&, const Node& n, const std::vector<Dims>& inputs,
                   const std::vector<Dims>& outputs) {
  const Graph& body = n.get_graph("body");
  // Symbols by the sizes of operands; expressions of symbols that no operand has alone, such as halves of
  // the model's own sizes, where an operand or result has just that size.
  SymbolValues sizes;
  std::vector<std::pair<Dim, int64_t>> seen;
  auto look = [&](const std::vector<ValueId>& values, const std::vector<Dims>& dims) {
    for (size_t i = 0; i < values.size() && i < dims.size(); ++i) {
      const Type& t = body.type(values[i]);
      for (size_t d = 0; d < t.shape.size() && d < dims[i].size(); ++d) {
        if (auto symbol = t.shape[d].as_symbol()) sizes.emplace(*symbol, dims[i][d]);
        seen.emplace_back(t.shape[d], dims[i][d]);
      }
    }
  };
  look(body.inputs, inputs);
  look(body.outputs, outputs);
  auto size_of = [&](const Dim& dim) -> std::optional<int64_t> {
    for (const auto& [known, size] : seen)
      if (known == dim) return size;
    std::set<std::string> names;
    dim.collect_symbols(names);
    for (const std::string& name : names)
      if (!sizes.count(name)) return std::nullopt;
    return dim.eval(sizes);
  };
  // Absent values have no sizes; those whose size depends on data leave their node out.
  auto dims_of = [&](const std::vector<ValueId>& values, std::vector<Dims>& into) {
    for (ValueId v : values) {
      into.emplace_back();
      if (!v || !body.type(v).is_tensor()) continue;
      for (const Dim& d : body.type(v).shape) {
        const std::optional<int64_t> size = size_of(d);
        if (!size) return false;
        into.back().push_back(*size);
      }
    }
    return true;
  };
  double sum = 0;
  for (NodeId id : body.order()) {
    const Node& node = body[id];
    std::vector<Dims> in, out;
    if (node.op->flops && dims_of(node.inputs, in) && dims_of(node.outputs, out))
      sum += node.op->flops(body, node, in, out);
  }
  return sum;
}

}  // namespace pelton::ir
