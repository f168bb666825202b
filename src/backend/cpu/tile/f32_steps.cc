// SPDX-License-Identifier: Apache-2.0
// The f32 steps, once an instruction set.
#include <cmath>
#include <cstring>

#include "backend/cpu/tile/step.h"
#include "tensor/float_types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/tile/f32_steps.cc"
#include "backend/cpu/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pelton::backend::cpu::HWY_NAMESPACE {
#include "backend/cpu/simd/math.inc"

constexpr int64_t kMaxLanes = 16;

HWY_INLINE const float* floats(const void* p) {
  return static_cast<const float*>(p);
}

// One operand of a step: a run or one value.
struct Operand {
  const float* p;
  bool one;
  VF value;
  HWY_INLINE Operand(const Step& s, int i)
      : p(floats(s.in[i])), one(s.one[i]), value(s.one[i] ? splat(*floats(s.in[i])) : splat(0.0f)) {}
  HWY_INLINE VF load(int64_t i) const { return one ? value : hn::LoadU(DF(), p + i); }
  HWY_INLINE VF load_tail(int64_t i, int64_t count) const {
    if (one) return value;
    alignas(64) float buffer[kMaxLanes] = {};
    for (int64_t k = 0; k < count; ++k) buffer[k] = p[i + k];
    return hn::Load(DF(), buffer);
  }
};
HWY_INLINE void store_tail(VF v, float* out, int64_t count) {
  alignas(64) float buffer[kMaxLanes];
  hn::Store(v, DF(), buffer);
  for (int64_t k = 0; k < count; ++k) out[k] = buffer[k];
}

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

// Reductions keep four running vectors, so the order of sums depends on the length alone (and the ISA). at(i)
// yields the vector at i, tail(i, count) one whose first `count` lanes count; each place is asked for once,
// in order.
template <class F, class G, class At, class Tail>
HWY_INLINE float reduced(int64_t n, float start, F f, G combine, At at, Tail tail) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  VF r0 = splat(start), r1 = r0, r2 = r0, r3 = r0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    r0 = f(r0, at(i));
    r1 = f(r1, at(i + lanes));
    r2 = f(r2, at(i + 2 * lanes));
    r3 = f(r3, at(i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) r0 = f(r0, at(i));
  if (i < n) {
    // Only the lanes that exist take part.
    alignas(64) float keep[kMaxLanes], taken[kMaxLanes];
    hn::Store(r1, DF(), keep);
    hn::Store(f(r1, tail(i, n - i)), DF(), taken);
    for (int64_t k = 0; k < n - i; ++k) keep[k] = taken[k];
    r1 = hn::Load(DF(), keep);
  }
  const VF all = combine(combine(r0, r1), combine(r2, r3));
  // Pairwise over the lanes; what lies above `width` takes part but is not used.
  alignas(64) float parts[2 * kMaxLanes] = {};
  hn::Store(all, DF(), parts);
  for (int64_t width = lanes / 2; width > 0; width /= 2)
    hn::Store(combine(hn::Load(DF(), parts), hn::LoadU(DF(), parts + width)), DF(), parts);
  return parts[0];
}
template <class F, class G>
HWY_INLINE void reduce(const Step& s, int64_t n, float start, F f, G combine) {
  const Operand a(s, 0);
  *static_cast<float*>(s.out) = reduced(
      n, start, f, combine, [&](int64_t i) HWY_ATTR { return hn::LoadU(DF(), a.p + i); },
      [&](int64_t i, int64_t count) HWY_ATTR { return a.load_tail(i, count); });
}
// out = a + b, out2 = its reduction
template <class F>
HWY_INLINE void add_reduce(const Step& s, int64_t n, float start, F f) {
  const Operand a(s, 0), b(s, 1);
  auto* out = static_cast<float*>(s.out);
  *static_cast<float*>(s.out2) = reduced(
      n, start, f, f,
      [&](int64_t i) HWY_ATTR {
        const VF sum = hn::Add(a.load(i), b.load(i));
        hn::StoreU(sum, DF(), out + i);
        return sum;
      },
      [&](int64_t i, int64_t count) HWY_ATTR {
        const VF sum = hn::Add(a.load_tail(i, count), b.load_tail(i, count));
        store_tail(sum, out + i, count);
        return sum;
      });
}
void add_sum(const Step& s, int64_t n) {
  add_reduce(s, n, 0.0f, [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); });
}
void add_max(const Step& s, int64_t n) {
  add_reduce(s, n, -HUGE_VALF, [](VF a, VF b) HWY_ATTR { return max_nan(a, b); });
}
void reduce_sum(const Step& s, int64_t n) {
  auto add = [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); };
  reduce(s, n, 0.0f, add, add);
}
void reduce_prod(const Step& s, int64_t n) {
  const float* p = floats(s.in[0]);
  double product = 1;
  for (int64_t i = 0; i < n; ++i) product *= p[i];
  *static_cast<float*>(s.out) = static_cast<float>(product);
}
void reduce_max(const Step& s, int64_t n) {
  auto max = [](VF a, VF b) HWY_ATTR { return max_nan(a, b); };
  reduce(s, n, -HUGE_VALF, max, max);
}
void reduce_min(const Step& s, int64_t n) {
  auto min = [](VF a, VF b) HWY_ATTR { return min_nan(a, b); };
  reduce(s, n, HUGE_VALF, min, min);
}
void reduce_squares(const Step& s, int64_t n) {
  const VF center = splat(*floats(s.in[1]));
  reduce(
      s, n, 0.0f,
      [center](VF a, VF x) HWY_ATTR {
        const VF c = hn::Sub(x, center);
        return hn::MulAdd(c, c, a);
      },
      [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); });
}
void exp_sum(const Step& s, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const float* p = floats(s.in[0]);
  auto* out = static_cast<float*>(s.out);
  const VF shift = splat(*floats(s.in[1]));
  VF sum0 = splat(0), sum1 = splat(0);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const VF x = exp_ps(hn::Sub(hn::LoadU(DF(), p + i), shift));
    const VF y = exp_ps(hn::Sub(hn::LoadU(DF(), p + i + lanes), shift));
    hn::StoreU(x, DF(), out + i);
    hn::StoreU(y, DF(), out + i + lanes);
    sum0 = hn::Add(sum0, x);
    sum1 = hn::Add(sum1, y);
  }
  alignas(64) float parts[kMaxLanes];
  hn::Store(hn::Add(sum0, sum1), DF(), parts);
  for (; i < n; i += lanes) {
    alignas(64) float buffer[kMaxLanes] = {};
    const int64_t count = HWY_MIN(lanes, n - i);
    for (int64_t k = 0; k < count; ++k) buffer[k] = p[i + k];
    hn::Store(exp_ps(hn::Sub(hn::Load(DF(), buffer), shift)), DF(), buffer);
    for (int64_t k = 0; k < count; ++k) {
      out[i + k] = buffer[k];
      parts[k] += buffer[k];
    }
  }
  for (int64_t width = lanes / 2; width > 0; width /= 2)
    for (int64_t k = 0; k < width; ++k) parts[k] += parts[k + width];
  *static_cast<float*>(s.out2) = parts[0];
}
void norm_affine(const Step& s, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const Operand x(s, 0), mean(s, 1), rstd(s, 2), scale(s, 3), bias(s, 4);
  auto* out = static_cast<float*>(s.out);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VF y = hn::Mul(hn::Sub(x.load(i), mean.value), rstd.value);
    hn::StoreU(hn::MulAdd(y, scale.load(i), bias.load(i)), DF(), out + i);
  }
  if (i < n) {
    const VF y = hn::Mul(hn::Sub(x.load_tail(i, n - i), mean.value), rstd.value);
    store_tail(hn::MulAdd(y, scale.load_tail(i, n - i), bias.load_tail(i, n - i)), out + i, n - i);
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

struct CodeStep {
  Code code;
  StepFunction f;
};
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
                               {Code::clamp, clamp_step},
                               {Code::norm, norm_step},
                               {Code::eq, eq_step},
                               {Code::ne, ne_step},
                               {Code::lt, lt_step},
                               {Code::le, le_step},
                               {Code::gt, gt_step},
                               {Code::ge, ge_step},
                               {Code::select, select},
                               {Code::reduce_sum, reduce_sum},
                               {Code::reduce_max, reduce_max},
                               {Code::reduce_min, reduce_min},
                               {Code::reduce_prod, reduce_prod},
                               {Code::reduce_squares, reduce_squares},
                               {Code::exp_sum, exp_sum},
                               {Code::add_sum, add_sum},
                               {Code::add_max, add_max},
                               {Code::norm_affine, norm_affine},
                               {Code::round_bf16, round_bf16},
                               {Code::round_f16, round_f16}};

StepFunction find(Code code) {
  for (const CodeStep& row : kSteps)
    if (row.code == code) return row.f;
  return nullptr;
}

}  // namespace pelton::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pelton::backend::cpu {

StepFunction f32_step(Code code, device::CpuIsa isa) {
  return PELTON_SIMD_PICK(isa, find)(code);
}

}  // namespace pelton::backend::cpu
#endif
