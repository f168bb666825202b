// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/own/conv_chain.h"

#include <algorithm>

#include "base/cat.h"

namespace pelton::backend::cpu {

std::string refuse_conv_chain(const Group& group, const ir::Graph& graph, ir::NodeId node) {
  const ir::Node& n = group.node();
  if (!n.is("conv")) return "is not around a convolution";
  const ir::Type &x = graph.type(
                     graph[node].inputs[static_cast<size_t>(std::max(0, group.operands[0].input))]),
                 &y = graph.type(graph[node].outputs[0]);
  if (x.dtype != DType::f32 || y.dtype != DType::f32) return "needs f32";
  if (group.operands[0].input < 0 || x.rank() < 3) return "needs images";
  if (x.layout.kind != ir::Layout::Kind::channels_last || !(y.layout == x.layout))
    return "needs channels-last images";
  const Tensor& w = group.operands[1].constant;
  if (!w.defined() || w.dtype() != DType::f32) return "needs constant f32 weights";
  for (std::string_view side : {"low", "high"})
    for (const Dim& d : n.get_dims(side))
      if (!d.is_const() || d.value() < 0) return "needs constant pads that do not crop";
  const bool own_bias = n.inputs.size() > 2 && n.inputs[2];
  if (own_bias && group.graph->type(n.inputs[2]).dtype != DType::f32) return "has a bias of another type";
  const size_t first = !own_bias && !group.steps.empty() && is_bias(group.steps[0], y.shape.size(), 1);
  for (size_t i = first; i < group.steps.size(); ++i)
    if (const GroupOperand& o = group.steps[i].operand;
        o.constant.defined() ? o.constant.count() != 1 : o.present() && !(o.shape == y.shape))
      return cat("has an operand of ", group.steps[i].op, " that is not like the result");
  return RowChain::refuse(group, first, graph, node, 1);
}

void ConvChain::take(const Group& group, size_t rank, device::CpuIsa isa) {
  size_t first = 0;
  if (group.operands.size() > 2 && group.operands[2].present()) {
    bias_ = group.operands[2];
  } else if (!group.steps.empty() && is_bias(group.steps[0], rank, 1)) {
    bias_ = group.steps[0].operand;
    first = 1;
  }
  if (first < group.steps.size() && group.steps[first].op == "relu") {
    low_ = 0;
    ++first;
  }
  chain_.take(group, first, {}, rank, 1, isa);
}

const float* ConvChain::bias(const RunArgs& args) const {
  return static_cast<const float*>(!bias_.present()   ? nullptr
                                   : bias_.input >= 0 ? args.in[static_cast<size_t>(bias_.input)]
                                                      : bias_.constant.data());
}

void ConvChain::run(const RunArgs& args, int64_t at, int64_t count) const {
  chain_.run(args, static_cast<float*>(args.out[0]) + at, 1, count, {0, 0, at, count, count});
}

}  // namespace pelton::backend::cpu
