// SPDX-License-Identifier: Apache-2.0
// The f32 steps over whole runs: reductions, alone and with what is computed on the way, and norms.
#include <cmath>

#include "backend/cpu/tile/f32_run_steps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/tile/f32_run_steps.cc"
#include "backend/cpu/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pelton::backend::cpu::HWY_NAMESPACE {
#include "backend/cpu/tile/operand.inc"

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

constexpr CodeStep kSteps[] = {{Code::reduce_sum, reduce_sum},
                               {Code::reduce_max, reduce_max},
                               {Code::reduce_min, reduce_min},
                               {Code::reduce_prod, reduce_prod},
                               {Code::reduce_squares, reduce_squares},
                               {Code::exp_sum, exp_sum},
                               {Code::add_sum, add_sum},
                               {Code::add_max, add_max},
                               {Code::norm_affine, norm_affine}};

StepFunction find_run(Code code) {
  return find_step(code, kSteps);
}

}  // namespace pelton::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pelton::backend::cpu {

StepFunction f32_run_step(Code code, device::CpuIsa isa) {
  return PELTON_SIMD_PICK(isa, find_run)(code);
}

}  // namespace pelton::backend::cpu
#endif
