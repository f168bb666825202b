// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/own/winograd_chain.h"

#include <algorithm>

namespace pelton::backend::cpu {

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

void WinogradChain::take(const Group& group, size_t first, device::CpuIsa isa) {
  for (size_t i = first; i < group.steps.size(); ++i) {
    const GroupStep& s = group.steps[i];
    Late late{nullptr, -1, 0, {s.imm[0], s.imm[1]}};
    if (s.kind == GroupStep::linear || s.op == "clamp") late.values = 2;
    if (s.kind == GroupStep::binary) late.input = s.operand.input;
    late.function = f32_step(s.kind == GroupStep::linear ? Code::multiply_add : chain_code(s.op), isa);
    steps_.push_back(late);
  }
}

void WinogradChain::run(const RunArgs& args, int64_t at, int64_t count) const {
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
