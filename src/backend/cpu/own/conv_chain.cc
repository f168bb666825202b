// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/own/conv_chain.h"

#include <algorithm>

#include "base/cat.h"

namespace pelton::backend::cpu {
namespace {

// The loop of a step of the chain; Code::none where there is none.
Code chain_code(std::string_view op) {
  constexpr struct {
    std::string_view op;
    Code code;
  } kCodes[] = {{"relu", Code::relu},
                {"silu", Code::silu},
                {"sigmoid", Code::sigmoid},
                {"tanh", Code::tanh},
                {"gelu", Code::gelu_erf},
                {"gelu_tanh", Code::gelu_tanh},
                {"hard_swish", Code::hard_swish},
                {"hard_sigmoid", Code::hard_sigmoid},
                {"leaky_relu", Code::leaky_relu},
                {"exp", Code::exp},
                {"abs", Code::abs},
                {"square", Code::square},
                {"sqrt", Code::sqrt},
                {"neg", Code::neg},
                {"clamp", Code::clamp},
                {"add", Code::add},
                {"sub", Code::sub},
                {"mul", Code::mul},
                {"div", Code::div},
                {"max", Code::max},
                {"min", Code::min}};
  for (const auto& row : kCodes)
    if (row.op == op) return row.code;
  return Code::none;
}

}  // namespace

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
  for (size_t i = 0; i < group.steps.size(); ++i) {
    const GroupStep& s = group.steps[i];
    if (s.kind == GroupStep::linear || (i == 0 && !own_bias && is_bias(s, y.shape.size(), 1))) continue;
    if (chain_code(s.op) == Code::none) return cat("has no loop for ", s.op);
    if (s.kind != GroupStep::binary) continue;
    if (s.operand.input < 0 || s.operand.reshaped) return cat("has a constant operand of ", s.op);
    const ir::Type& other = graph.type(graph[node].inputs[static_cast<size_t>(s.operand.input)]);
    if (!(other.shape == y.shape) || !(other.layout == y.layout) || other.dtype != DType::f32)
      return cat("has an operand of ", s.op, " that is not like the result");
  }
  return {};
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
  for (size_t i = first; i < group.steps.size(); ++i) {
    const GroupStep& s = group.steps[i];
    Late late{nullptr, -1, 0, {s.imm[0], s.imm[1]}};
    if (s.kind == GroupStep::linear || s.op == "clamp") late.values = 2;
    if (s.kind == GroupStep::binary) late.input = s.operand.input;
    late.function = f32_step(s.kind == GroupStep::linear ? Code::multiply_add : chain_code(s.op), isa);
    steps_.push_back(late);
  }
}

const float* ConvChain::bias(const RunArgs& args) const {
  return static_cast<const float*>(!bias_.present()   ? nullptr
                                   : bias_.input >= 0 ? args.in[static_cast<size_t>(bias_.input)]
                                                      : bias_.constant.data());
}

void ConvChain::run(const RunArgs& args, int64_t at, int64_t count) const {
  for (const Late& late : steps_) {
    Step s;
    s.in[0] = s.out = static_cast<float*>(args.out[0]) + at;
    if (late.input >= 0) s.in[1] = static_cast<const float*>(args.in[static_cast<size_t>(late.input)]) + at;
    for (int i = 0; i < late.values; ++i) {
      s.in[1 + i] = &late.imm[i];
      s.one[1 + i] = true;
    }
    std::copy(std::begin(late.imm), std::end(late.imm), s.imm);
    late.function(s, count);
  }
}

}  // namespace pelton::backend::cpu
