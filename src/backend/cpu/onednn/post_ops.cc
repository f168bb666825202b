// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/onednn/post_ops.h"

#include <algorithm>

#include "base/cat.h"

namespace pelton::backend::cpu::onednn {
namespace {

using Algorithm = dnnl::algorithm;

struct Eltwise {
  std::string_view op;
  Algorithm algorithm;
  float alpha, beta;  // unless the step brings its own
};
// What loses a NaN in the library (exp, hard_sigmoid, and max and min with an operand) is left out. relu and
// clamp lose it too, and stay: docs/numerics.md says so.
constexpr Eltwise kEltwise[] = {
    {"relu", Algorithm::eltwise_relu, 0, 0},
    {"sigmoid", Algorithm::eltwise_logistic, 0, 0},
    {"tanh", Algorithm::eltwise_tanh, 0, 0},
    {"silu", Algorithm::eltwise_swish, 1, 0},
    {"gelu", Algorithm::eltwise_gelu_erf, 0, 0},
    {"gelu_tanh", Algorithm::eltwise_gelu_tanh, 0, 0},
    {"hard_swish", Algorithm::eltwise_hardswish, 1.0f / 6, 0.5f},
    {"abs", Algorithm::eltwise_abs, 0, 0},
    {"square", Algorithm::eltwise_square, 0, 0},
    {"sqrt", Algorithm::eltwise_sqrt, 0, 0},
    {"neg", Algorithm::eltwise_linear, -1, 0},
    {"round", Algorithm::eltwise_round, 0, 0},
    {"mish", Algorithm::eltwise_mish, 0, 0},
};
struct Own {
  std::string_view op;
  Algorithm algorithm;
};
constexpr Own kWithImmediates[] = {{"clamp", Algorithm::eltwise_clip},
                                   {"leaky_relu", Algorithm::eltwise_relu},
                                   {"elu", Algorithm::eltwise_elu}};
constexpr Own kBinary[] = {{"add", Algorithm::binary_add},
                           {"sub", Algorithm::binary_sub},
                           {"mul", Algorithm::binary_mul},
                           {"div", Algorithm::binary_div}};

template <class Row, size_t N>
const Row* find(const Row (&rows)[N], std::string_view op) {
  for (const Row& row : rows)
    if (row.op == op) return &row;
  return nullptr;
}

}  // namespace

std::string refuse_steps(const Group& group) {
  // The library takes 32; a bias may be one of them.
  if (group.steps.size() > 24) return cat("has ", group.steps.size(), " steps after the contraction");
  for (const GroupStep& s : group.steps) {
    if (s.kind == GroupStep::eltwise && !find(kEltwise, s.op) && !find(kWithImmediates, s.op))
      return cat("oneDNN has no post-op for ", s.op);
    if (s.kind == GroupStep::binary && !find(kBinary, s.op)) return cat("oneDNN has no post-op for ", s.op);
  }
  return {};
}

Tail tail_of(const Group& group, device::CpuIsa isa) {
  if (group.steps.empty() || group.result != DType::f32) return {};
  const GroupStep& s = group.steps.back();
  if (s.kind != GroupStep::eltwise) return {};
  constexpr struct {
    std::string_view op;
    Code code;
    bool zero;
  } kTails[] = {{"silu", Code::silu, true},
                {"sigmoid", Code::sigmoid, false},
                {"tanh", Code::tanh, true},
                {"gelu", Code::gelu_erf, true},
                {"gelu_tanh", Code::gelu_tanh, true}};
  for (const auto& t : kTails)
    if (t.op == s.op) return {f32_step(t.code, isa), t.zero};
  return {};
}

PostOps post_ops_of(const Group& group, size_t first, size_t last, const Instance& instance, size_t rank,
                    FunctionRef<Desc(const TensorSpec&)> as_seen) {
  PostOps out;
  for (size_t i = first; i < last; ++i) {
    const GroupStep& s = group.steps[i];
    if (s.kind == GroupStep::linear) {
      out.ops.append_eltwise(Algorithm::eltwise_linear, s.imm[0], s.imm[1]);
    } else if (s.kind == GroupStep::eltwise) {
      if (const Eltwise* e = find(kEltwise, s.op))
        out.ops.append_eltwise(e->algorithm, e->alpha, e->beta);
      else
        out.ops.append_eltwise(find(kWithImmediates, s.op)->algorithm, s.imm[0], s.imm[1]);
    } else {
      TensorSpec spec = spec_of(s.operand, DType::f32, instance);
      if (spec.dims.size() < rank) {
        spec.dims.insert(spec.dims.begin(), rank - spec.dims.size(), 1);
        spec.layout = {};
      }
      const Desc desc = as_seen(spec);
      out.operands.push_back(
          {DNNL_ARG_ATTR_MULTIPLE_POST_OP(out.ops.len()) | DNNL_ARG_SRC_1, desc, s.operand});
      out.ops.append_binary(find(kBinary, s.op)->algorithm, desc);
    }
  }
  return out;
}

Place place_of(const GroupOperand& operand, Sequence& sequence) {
  return operand.input >= 0 ? input(operand.input) : sequence.keep(operand.constant);
}

void bind_operands(const PostOps& post, Sequence& sequence, std::vector<Argument>& arguments) {
  for (const PostOps::Operand& o : post.operands)
    arguments.push_back({o.argument, o.desc, place_of(o.operand, sequence)});
}

}  // namespace pelton::backend::cpu::onednn
