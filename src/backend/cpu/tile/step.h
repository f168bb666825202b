// SPDX-License-Identifier: Apache-2.0
// Steps of a tile program: each works on whole runs of elements ("lanes" of one class) that lie in L1,
// reading and writing registers, which are arrays, or in place of an array one value that stands for all of
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "device/target.h"
#include "ir/op.h"
#include "tensor/dtype.h"

namespace pelton::backend::cpu {

// f16, bf16 and f32 compute as f32, every integer as 64 bits (u64 keeps its bits), bool as bytes 0 and 1.
enum class Lane : uint8_t { f32, f64, i64, boolean };
constexpr int lane_bytes(Lane lane) {
  return lane == Lane::f32 ? 4 : lane == Lane::boolean ? 1 : 8;
}

enum class Code : uint8_t {
  // one operand, f32
  neg,
  abs,
  sign,
  reciprocal,
  relu,
  floor,
  ceil,
  round,
  trunc,
  square,
  exp,
  log,
  sqrt,
  rsqrt,
  tanh,
  erf,
  sigmoid,
  silu,
  gelu_erf,
  gelu_tanh,
  hard_swish,
  hard_sigmoid,  // max(0, min(1, imm0 x + imm1))
  leaky_relu,    // x < 0 ? imm0 x : x
  elu,           // x < 0 ? imm0 (e^(x / imm1) - 1) : x
  softsign,      // x / (1 + |x|)
  round_f16,
  round_bf16,  // to the nearest value of the narrower type
  // two operands, f32
  add,
  sub,
  mul,
  div,
  max,
  min,
  prelu,
  to_range,  // a rounded to nearest even (NaN: 0) + b, at least imm0 and at most imm1
  // three operands, f32
  multiply_add,  // a b + c
  clamp,         // min(max(a, b), c)
  // pairs of the above in one pass
  add_relu,           // max(a + b, 0)
  multiply_add_relu,  // max(a b + c, 0)
  sub_square,         // (a - b)^2
  sub_mul,            // (a - b) c
  add_mul,            // (a + b) c
  add_add,            // (a + b) + c
  mul_mul,            // (a b) c
  mul_sub,            // a b - c
  sub_product,        // c - a b
  sub_multiply_add,   // (a - b) c + d
  hard_swish_add,     // hard_swish(a) + b
  add_gelu_erf,       // gelu_erf(a + b), and so on
  add_gelu_tanh,
  silu_mul,  // silu(a) b, and so on
  sigmoid_mul,
  tanh_mul,
  // comparisons of f32, yielding booleans
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  // boolean condition, f32 choices
  select,
  // over a whole run, yielding one value
  reduce_sum,
  reduce_max,
  reduce_min,
  reduce_prod,
  reduce_squares,  // sum of (a - b)^2, b one value
  exp_sum,         // out = e^(a - b), b one value; out2 = its sum
  add_sum,         // out = a + b, out2 = its sum
  add_max,         // out = a + b, out2 = its largest value
  norm,            // (a - b) c, b and c one value each
  norm_affine,     // (a - b) c d + e: in[3] scale and in[4] bias run along
  none,
};

// What the steps outside f32 need besides operands.
struct WideInfo {
  const ir::ScalarDef* scalar = nullptr;  // called once an element where no loop is written out
  int arity = 0;
  Lane lane = Lane::f32;     // of the operands
  DType dtype = DType::f32;  // of the operands; of the result for convert and wrap
};

struct Step {
  const void* in[5] = {};
  bool one[5] = {};  // the operand is one value
  void* out = nullptr;
  void* out2 = nullptr;
  float imm[2] = {};
  const WideInfo* wide = nullptr;
};
using StepFunction = void (*)(const Step& step, int64_t n);

// The loop of an op on f32 that has one by its name alone; none where there is none.
Code f32_code(std::string_view op);
// The f32 function of a code, compiled for `isa`; null where the code is not an f32 one.
StepFunction f32_step(Code code, device::CpuIsa isa);
// A pointwise op of the table on operands of `lane`: a loop where the op is common, else a call an element.
StepFunction wide_step(std::string_view op, Lane lane);
StepFunction select_step(Lane lane);
// From `from` to the lane of wide->dtype, with the rules of the op `cast`.
StepFunction convert_step(Lane from, Lane to);
// i64 to the range of wide->dtype, modulo its width.
void wrap_step(const Step& step, int64_t n);

}  // namespace pelton::backend::cpu
