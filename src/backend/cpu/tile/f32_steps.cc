// SPDX-License-Identifier: Apache-2.0
// The f32 steps element by element, once an instruction set.
#include <cstring>

#include "backend/cpu/tile/f32_run_steps.h"
#include "backend/cpu/tile/step.h"
#include "tensor/float_types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/tile/f32_steps.cc"
#include "backend/cpu/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pelton::backend::cpu::HWY_NAMESPACE {
#include "backend/cpu/tile/operand.inc"

template <class F>
HWY_INLINE void map1(const Step& s, int64_t n, F f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const Operand a(s, 0);
  auto* out = static_cast<float*>(s.out);
  if (n == 1) {  // what is one value a row
    *out = hn::GetLane(f(splat(*a.p)));
    return;
  }
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(a.load(i)), DF(), out + i);
  if (i < n) store_tail(f(a.load_tail(i, n - i)), out + i, n - i);
}
template <class F>
HWY_INLINE void map2(const Step& s, int64_t n, F f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const Operand a(s, 0), b(s, 1);
  auto* out = static_cast<float*>(s.out);
  if (n == 1) {
    *out = hn::GetLane(f(splat(*a.p), splat(*b.p)));
    return;
  }
  int64_t i = 0;
  if (!a.one && !b.one)
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(f(hn::LoadU(DF(), a.p + i), hn::LoadU(DF(), b.p + i)), DF(), out + i);
  else
    for (; i + lanes <= n; i += lanes) hn::StoreU(f(a.load(i), b.load(i)), DF(), out + i);
  if (i < n) store_tail(f(a.load_tail(i, n - i), b.load_tail(i, n - i)), out + i, n - i);
}
template <class F>
HWY_INLINE void map3(const Step& s, int64_t n, F f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const Operand a(s, 0), b(s, 1), c(s, 2);
  auto* out = static_cast<float*>(s.out);
  if (n == 1) {
    *out = hn::GetLane(f(splat(*a.p), splat(*b.p), splat(*c.p)));
    return;
  }
  int64_t i = 0;
  if (!a.one && !b.one && !c.one)
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(f(hn::LoadU(DF(), a.p + i), hn::LoadU(DF(), b.p + i), hn::LoadU(DF(), c.p + i)), DF(),
                 out + i);
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(a.load(i), b.load(i), c.load(i)), DF(), out + i);
  if (i < n)
    store_tail(f(a.load_tail(i, n - i), b.load_tail(i, n - i), c.load_tail(i, n - i)), out + i, n - i);
}
// Comparisons: the mask becomes bytes through an f32 one or zero, which the compiler narrows well.
template <class F>
HWY_INLINE void compare(const Step& s, int64_t n, F f) {
  const float *a = floats(s.in[0]), *b = floats(s.in[1]);
  auto* out = static_cast<uint8_t*>(s.out);
  if (s.one[0]) {
    const float x = *a;
    if (s.one[1])
      for (int64_t i = 0; i < n; ++i) out[i] = f(x, *b);
    else
      for (int64_t i = 0; i < n; ++i) out[i] = f(x, b[i]);
  } else if (s.one[1]) {
    const float y = *b;
    for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], y);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
  }
}
void select(const Step& s, int64_t n) {
  const auto* condition = static_cast<const uint8_t*>(s.in[0]);
  const float *a = floats(s.in[1]), *b = floats(s.in[2]);
  auto* out = static_cast<float*>(s.out);
  const int64_t stride_c = !s.one[0], stride_a = !s.one[1], stride_b = !s.one[2];
  if (stride_c && stride_a && stride_b)
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? a[i] : b[i];
  else if (stride_c && stride_a) {
    const float y = *b;
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? a[i] : y;
  } else if (stride_c && stride_b) {
    const float x = *a;
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? x : b[i];
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i * stride_c] ? a[i * stride_a] : b[i * stride_b];
  }
}
HWY_INLINE uint32_t bf16_bits(float v) {
  uint32_t u;
  std::memcpy(&u, &v, 4);
  const uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
  const uint32_t quiet = u | 0x400000u;
  return ((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) & 0xffff0000u;
}
void round_bf16(const Step& s, int64_t n) {
  const float* p = floats(s.in[0]);
  auto* out = static_cast<float*>(s.out);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t u = bf16_bits(p[i]);
    std::memcpy(out + i, &u, 4);
  }
}
void round_f16(const Step& s, int64_t n) {
  const float* p = floats(s.in[0]);
  auto* out = static_cast<float*>(s.out);
  for (int64_t i = 0; i < n; ++i) out[i] = f16_to_float(f16_from_float(p[i]));
}

#define MAP1(name, ...)                                                       \
  void name##_step(const Step& s, int64_t n) {                                \
    [[maybe_unused]] const VF imm0 = splat(s.imm[0]), imm1 = splat(s.imm[1]); \
    map1(s, n, [=](VF x) HWY_ATTR { return __VA_ARGS__; });                   \
  }
#define MAP2(name, ...)                                           \
  void name##_step(const Step& s, int64_t n) {                    \
    map2(s, n, [=](VF x, VF y) HWY_ATTR { return __VA_ARGS__; }); \
  }
#define MAP3(name, ...)                                                 \
  void name##_step(const Step& s, int64_t n) {                          \
    map3(s, n, [=](VF x, VF y, VF z) HWY_ATTR { return __VA_ARGS__; }); \
  }
#define COMPARE(name, ...)                                                           \
  void name##_step(const Step& s, int64_t n) {                                       \
    compare(s, n, [](float x, float y) HWY_ATTR -> uint8_t { return __VA_ARGS__; }); \
  }

HWY_INLINE VF zero() {
  return splat(0.0f);
}
HWY_INLINE VF one() {
  return splat(1.0f);
}
HWY_INLINE VF hard_swish_ps(VF x) {
  return hn::Mul(x, at_most(1, at_least(0, hn::MulAdd(x, splat(1.0f / 6), splat(0.5f)))));
}
MAP1(neg, hn::Neg(x))
MAP1(abs, hn::Abs(x))
MAP1(sign, keep_nan(x, hn::IfThenElse(hn::Gt(x, zero()), one(),
                                      hn::IfThenElse(hn::Lt(x, zero()), splat(-1.0f), x))))
MAP1(reciprocal, hn::Div(one(), x))
MAP1(relu, at_least(0, x))
MAP1(floor, hn::Floor(x))
MAP1(ceil, hn::Ceil(x))
MAP1(round, hn::Round(x))
MAP1(trunc, hn::Trunc(x))
MAP1(square, hn::Mul(x, x))
MAP1(exp, exp_ps(x))
MAP1(log, log_ps(x))
MAP1(sqrt, hn::Sqrt(x))
MAP1(rsqrt, hn::Div(one(), hn::Sqrt(x)))
MAP1(tanh, tanh_ps(x))
MAP1(erf, erf_ps(x))
MAP1(sigmoid, sigmoid_ps(x))
MAP1(silu, silu_ps(x))
MAP1(gelu_erf, gelu_erf_ps(x))
MAP1(gelu_tanh, gelu_tanh_ps(x))
MAP1(hard_swish, hard_swish_ps(x))
MAP1(hard_sigmoid, at_most(1, at_least(0, hn::MulAdd(x, imm0, imm1))))
MAP1(leaky_relu, hn::IfThenElse(hn::Lt(x, zero()), hn::Mul(imm0, x), x))
MAP1(elu, hn::IfThenElse(hn::Lt(x, zero()), hn::Mul(imm0, hn::Sub(exp_ps(hn::Div(x, imm1)), one())), x))
MAP1(softsign, hn::Div(x, hn::Add(one(), hn::Abs(x))))
MAP2(add, hn::Add(x, y))
MAP2(sub, hn::Sub(x, y))
MAP2(mul, hn::Mul(x, y))
MAP2(div, hn::Div(x, y))
MAP2(max, max_nan(x, y))
MAP2(min, min_nan(x, y))
MAP2(prelu, hn::IfThenElse(hn::Lt(x, zero()), hn::Mul(x, y), x))
MAP3(multiply_add, hn::MulAdd(x, y, z))
MAP2(add_relu, at_least(0, hn::Add(x, y)))
MAP3(multiply_add_relu, at_least(0, hn::MulAdd(x, y, z)))
MAP3(sub_mul, hn::Mul(hn::Sub(x, y), z))
MAP3(add_mul, hn::Mul(hn::Add(x, y), z))
MAP3(add_add, hn::Add(hn::Add(x, y), z))
MAP3(mul_mul, hn::Mul(hn::Mul(x, y), z))
MAP3(mul_sub, hn::MulSub(x, y, z))
MAP3(sub_product, hn::NegMulAdd(x, y, z))
MAP2(hard_swish_add, hn::Add(hard_swish_ps(x), y))
MAP2(add_gelu_erf, gelu_erf_ps(hn::Add(x, y)))
MAP2(add_gelu_tanh, gelu_tanh_ps(hn::Add(x, y)))
MAP2(silu_mul, hn::Mul(silu_ps(x), y))
MAP2(sigmoid_mul, hn::Mul(sigmoid_ps(x), y))
MAP2(tanh_mul, hn::Mul(tanh_ps(x), y))
void to_range_step(const Step& s, int64_t n) {
  const VF low = splat(s.imm[0]), high = splat(s.imm[1]);
  map2(s, n, [=](VF x, VF y) HWY_ATTR {
    const VF whole = hn::IfThenElseZero(hn::Eq(x, x), hn::Round(x));
    return hn::Min(hn::Max(hn::Add(whole, y), low), high);
  });
}
MAP3(clamp, min_nan(max_nan(x, y), z))
MAP3(norm, hn::Mul(hn::Sub(x, y), z))
void sub_square_step(const Step& s, int64_t n) {
  map2(s, n, [](VF x, VF y) HWY_ATTR {
    const VF c = hn::Sub(x, y);
    return hn::Mul(c, c);
  });
}
void sub_multiply_add_step(const Step& s, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const Operand a(s, 0), b(s, 1), c(s, 2), e(s, 3);
  auto* out = static_cast<float*>(s.out);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::MulAdd(hn::Sub(a.load(i), b.load(i)), c.load(i), e.load(i)), DF(), out + i);
  if (i < n)
    store_tail(hn::MulAdd(hn::Sub(a.load_tail(i, n - i), b.load_tail(i, n - i)), c.load_tail(i, n - i),
                          e.load_tail(i, n - i)),
               out + i, n - i);
}
COMPARE(eq, x == y)
COMPARE(ne, x != y)
COMPARE(lt, x < y)
COMPARE(le, x <= y)
COMPARE(gt, x > y)
COMPARE(ge, x >= y)

constexpr CodeStep kSteps[] = {{Code::neg, neg_step},
                               {Code::abs, abs_step},
                               {Code::sign, sign_step},
                               {Code::reciprocal, reciprocal_step},
                               {Code::relu, relu_step},
                               {Code::floor, floor_step},
                               {Code::ceil, ceil_step},
                               {Code::round, round_step},
                               {Code::trunc, trunc_step},
                               {Code::square, square_step},
                               {Code::exp, exp_step},
                               {Code::log, log_step},
                               {Code::sqrt, sqrt_step},
                               {Code::rsqrt, rsqrt_step},
                               {Code::tanh, tanh_step},
                               {Code::erf, erf_step},
                               {Code::sigmoid, sigmoid_step},
                               {Code::silu, silu_step},
                               {Code::gelu_erf, gelu_erf_step},
                               {Code::gelu_tanh, gelu_tanh_step},
                               {Code::hard_swish, hard_swish_step},
                               {Code::hard_sigmoid, hard_sigmoid_step},
                               {Code::leaky_relu, leaky_relu_step},
                               {Code::elu, elu_step},
                               {Code::softsign, softsign_step},
                               {Code::add, add_step},
                               {Code::sub, sub_step},
                               {Code::mul, mul_step},
                               {Code::div, div_step},
                               {Code::max, max_step},
                               {Code::min, min_step},
                               {Code::prelu, prelu_step},
                               {Code::multiply_add, multiply_add_step},
                               {Code::add_relu, add_relu_step},
                               {Code::multiply_add_relu, multiply_add_relu_step},
                               {Code::sub_square, sub_square_step},
                               {Code::sub_mul, sub_mul_step},
                               {Code::add_mul, add_mul_step},
                               {Code::add_add, add_add_step},
                               {Code::mul_mul, mul_mul_step},
                               {Code::mul_sub, mul_sub_step},
                               {Code::sub_product, sub_product_step},
                               {Code::sub_multiply_add, sub_multiply_add_step},
                               {Code::hard_swish_add, hard_swish_add_step},
                               {Code::add_gelu_erf, add_gelu_erf_step},
                               {Code::add_gelu_tanh, add_gelu_tanh_step},
                               {Code::silu_mul, silu_mul_step},
                               {Code::sigmoid_mul, sigmoid_mul_step},
                               {Code::tanh_mul, tanh_mul_step},
                               {Code::to_range, to_range_step},
                               {Code::clamp, clamp_step},
                               {Code::norm, norm_step},
                               {Code::eq, eq_step},
                               {Code::ne, ne_step},
                               {Code::lt, lt_step},
                               {Code::le, le_step},
                               {Code::gt, gt_step},
                               {Code::ge, ge_step},
                               {Code::select, select},
                               {Code::round_bf16, round_bf16},
                               {Code::round_f16, round_f16}};

StepFunction find(Code code) {
  return find_step(code, kSteps);
}

}  // namespace pelton::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pelton::backend::cpu {

StepFunction f32_step(Code code, device::CpuIsa isa) {
  const StepFunction f = PELTON_SIMD_PICK(isa, find)(code);
  return f ? f : f32_run_step(code, isa);
}

}  // namespace pelton::backend::cpu
#endif
