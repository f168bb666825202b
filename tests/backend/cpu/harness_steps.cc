// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/harness_naive.h"
#include "interp/interpreter.h"
#include "ir/builder.h"
#include "ir/infer.h"
#include "ir/op.h"

namespace pelton::test {

using namespace pelton::ir;

namespace {

std::vector<HostValue> evaluate(const Graph& g, NodeId id, const std::vector<HostValue>& in,
                                const SymbolValues& symbols) {
  const Node& n = g[id];
  if (n.is("fused")) {
    std::vector<Tensor> tensors;
    for (const HostValue& v : in) tensors.push_back(v.tensor);
    std::vector<Tensor> out = step_by_step(n.get_graph("body"), tensors);
    return {out.begin(), out.end()};
  }
  if (std::optional<Tensor> t = naive(g, id, in, symbols)) return {*t};
  if (n.op->decompose) {
    Graph small;
    std::vector<HostValue> given;
    std::vector<ValueId> args;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (!n.inputs[i]) {
        args.push_back({});
        continue;
      }
      args.push_back(small.add_input(Type::tensor(in[i].tensor.dtype(), to_shape(in[i].tensor.dims()))));
      given.push_back(in[i]);
    }
    NodeId copy = small.add_node(*n.op, args, n.attrs, n.outputs.size());
    infer(small, copy);
    Builder b(small, copy);
    const Node node = small[copy];  // the arena may move while nodes are added
    small.outputs = n.op->decompose(b, node);
    small.remove(copy);
    std::vector<Tensor> tensors;
    for (const HostValue& v : given) tensors.push_back(v.tensor);
    if (!small.outputs.empty()) {
      std::vector<Tensor> out = step_by_step(small, tensors);
      return {out.begin(), out.end()};
    }
  }
  interp::Options options;
  options.symbols = symbols;
  return interp::run_node(g, id, in, options);
}

}  // namespace

std::vector<Tensor> step_by_step(const Graph& g, const std::vector<Tensor>& inputs) {
  std::vector<HostValue> values(g.value_count());
  SymbolValues symbols;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    values[g.inputs[i].index] = inputs[i];
    interp::bind_symbols(g.type(g.inputs[i]), inputs[i].dims(), symbols, "input");
  }
  for (NodeId id : g.order()) {
    std::vector<HostValue> in;
    for (ValueId v : g[id].inputs) in.push_back(v ? values[v.index] : HostValue());
    std::vector<HostValue> out = evaluate(g, id, in, symbols);
    for (size_t k = 0; k < g[id].outputs.size(); ++k) values[g[id].outputs[k].index] = out[k];
  }
  std::vector<Tensor> out;
  for (ValueId v : g.outputs) out.push_back(values[v.index].tensor);
  return out;
}

}  // namespace pelton::test
