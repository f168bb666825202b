// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/own/norm_steps.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/own/norm_steps.cc"
#include "backend/cpu/simd/targets.h"

#include <hwy/foreach_target.h>  // after HWY_TARGET_INCLUDE
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace pelton::backend::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Calls f(lane descriptor, i) for whole vectors, then with one lane for the rest.
template <class F>
HWY_INLINE void for_lanes(int64_t n, F&& f) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) f(d, i);
  const hn::CappedTag<float, 1> one;
  for (; i < n; ++i) f(one, i);
}

// Two sums over n elements, each in vectors of f32; term(d, i, &first, &second).
template <class F>
HWY_INLINE void two_sums(int64_t n, float* sums, F&& term) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V first = hn::Zero(d), second = hn::Zero(d), first_2 = hn::Zero(d), second_2 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    V a, b;
    term(d, i, a, b);
    first = hn::Add(first, a);
    second = hn::Add(second, b);
    term(d, i + lanes, a, b);
    first_2 = hn::Add(first_2, a);
    second_2 = hn::Add(second_2, b);
  }
  sums[0] = hn::GetLane(hn::SumOfLanes(d, hn::Add(first, first_2)));
  sums[1] = hn::GetLane(hn::SumOfLanes(d, hn::Add(second, second_2)));
  const hn::CappedTag<float, 1> one;
  for (; i < n; ++i) {
    hn::Vec<hn::CappedTag<float, 1>> a, b;
    term(one, i, a, b);
    sums[0] += hn::GetLane(a);
    sums[1] += hn::GetLane(b);
  }
}

constexpr int64_t kBlock = 1024;  // elements whose sums stay in f32
template <class F>
HWY_INLINE void blocked_sums(int64_t n, double* sums, F&& block) {
  for (int64_t at = 0; at < n; at += kBlock) {
    float part[2];
    block(at, std::min(kBlock, n - at), part);
    sums[0] += static_cast<double>(part[0]);
    sums[1] += static_cast<double>(part[1]);
  }
}

void PlaneSums(const float* x, float shift, int64_t n, double* sums) {
  blocked_sums(n, sums, [&](int64_t at, int64_t count, float* part) HWY_ATTR {
    two_sums(count, part, [&](auto d, int64_t i, auto& a, auto& b) HWY_ATTR {
      a = hn::Sub(hn::LoadU(d, x + at + i), hn::Set(d, shift));
      b = hn::Mul(a, a);
    });
  });
}
void PlaneForward(const float* x, float* y, int64_t n, float m, float a, float b) {
  for_lanes(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto h = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, m));
    hn::StoreU(hn::MulAdd(h, hn::Set(d, a), hn::Set(d, b)), d, y + i);
  });
}
void PlaneBackwardSums(const float* g, const float* x, float m, int64_t n, double* sums) {
  blocked_sums(n, sums, [&](int64_t at, int64_t count, float* part) HWY_ATTR {
    two_sums(count, part, [&](auto d, int64_t i, auto& a, auto& b) HWY_ATTR {
      a = hn::LoadU(d, g + at + i);
      b = hn::Mul(a, hn::Sub(hn::LoadU(d, x + at + i), hn::Set(d, m)));
    });
  });
}
void PlaneBackward(const float* g, const float* x, float* dx, int64_t n, float m, float u, float v, float a) {
  for_lanes(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto h = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, m));
    const auto s = hn::Sub(hn::LoadU(d, g + i), hn::Set(d, u));
    hn::StoreU(hn::Mul(hn::NegMulAdd(h, hn::Set(d, v), s), hn::Set(d, a)), d, dx + i);
  });
}

void RowSums(const float* x, int64_t rows, int64_t c, const float* shift, float* first, float* second) {
  for (int64_t r = 0; r < rows; ++r, x += c)
    for_lanes(c, [&](auto d, int64_t i) HWY_ATTR {
      const auto h = hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, shift + i));
      hn::StoreU(hn::Add(hn::LoadU(d, first + i), h), d, first + i);
      hn::StoreU(hn::MulAdd(h, h, hn::LoadU(d, second + i)), d, second + i);
    });
}
void RowForward(const float* x, float* y, int64_t rows, int64_t c, const float* m, const float* a,
                const float* b) {
  for (int64_t r = 0; r < rows; ++r, x += c, y += c)
    for_lanes(c, [&](auto d, int64_t i) HWY_ATTR {
      const auto h = hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, m + i));
      hn::StoreU(hn::MulAdd(h, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, y + i);
    });
}
void RowBackwardSums(const float* g, const float* x, int64_t rows, int64_t c, const float* m, float* first,
                     float* second) {
  for (int64_t r = 0; r < rows; ++r, g += c, x += c)
    for_lanes(c, [&](auto d, int64_t i) HWY_ATTR {
      const auto e = hn::LoadU(d, g + i), h = hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, m + i));
      hn::StoreU(hn::Add(hn::LoadU(d, first + i), e), d, first + i);
      hn::StoreU(hn::MulAdd(e, h, hn::LoadU(d, second + i)), d, second + i);
    });
}
void RowBackward(const float* g, const float* x, float* dx, int64_t rows, int64_t c, const float* m,
                 const float* u, const float* v, const float* a) {
  for (int64_t r = 0; r < rows; ++r, g += c, x += c, dx += c)
    for_lanes(c, [&](auto d, int64_t i) HWY_ATTR {
      const auto h = hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, m + i));
      const auto s = hn::Sub(hn::LoadU(d, g + i), hn::LoadU(d, u + i));
      hn::StoreU(hn::Mul(hn::NegMulAdd(h, hn::LoadU(d, v + i), s), hn::LoadU(d, a + i)), d, dx + i);
    });
}

template <bool scaled, class Tag>
HWY_INLINE hn::Vec<Tag> scaled_gradient(Tag d, const float* g, const float* scale, int64_t i) {
  if constexpr (scaled) return hn::Mul(hn::LoadU(d, g + i), hn::LoadU(d, scale + i));
  return hn::LoadU(d, g + i);
}
template <bool scaled>
HWY_INLINE void tail_sums(const float* g, const float* x, const float* scale, float m, int64_t n,
                          float* sums) {
  two_sums(n, sums, [&](auto d, int64_t i, auto& a, auto& b) HWY_ATTR {
    a = scaled_gradient<scaled>(d, g, scale, i);
    b = hn::Mul(a, hn::Sub(hn::LoadU(d, x + i), hn::Set(d, m)));
  });
}
void TailSums(const float* g, const float* x, const float* scale, float m, int64_t n, float* sums) {
  if (scale)
    tail_sums<true>(g, x, scale, m, n, sums);
  else
    tail_sums<false>(g, x, scale, m, n, sums);
}
template <bool scaled, bool parameters>
HWY_INLINE void tail_backward(const float* g, const float* x, const float* scale, float* dx, int64_t n,
                              float m, float u, float v, float a, float* dscale, float* dbias) {
  for_lanes(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto h = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, m));
    const auto s = hn::Sub(scaled_gradient<scaled>(d, g, scale, i), hn::Set(d, u));
    hn::StoreU(hn::Mul(hn::NegMulAdd(h, hn::Set(d, v), s), hn::Set(d, a)), d, dx + i);
    if constexpr (parameters) {
      const auto e = hn::LoadU(d, g + i);
      const auto by_scale = hn::MulAdd(hn::Mul(e, h), hn::Set(d, a), hn::LoadU(d, dscale + i));
      hn::StoreU(by_scale, d, dscale + i);
      if (dbias) hn::StoreU(hn::Add(hn::LoadU(d, dbias + i), e), d, dbias + i);
    }
  });
}
void TailBackward(const float* g, const float* x, const float* scale, float* dx, int64_t n, float m, float u,
                  float v, float a, float* dscale, float* dbias) {
  if (scale && dscale)
    tail_backward<true, true>(g, x, scale, dx, n, m, u, v, a, dscale, dbias);
  else if (scale)
    tail_backward<true, false>(g, x, scale, dx, n, m, u, v, a, dscale, dbias);
  else if (dscale)
    tail_backward<false, true>(g, x, scale, dx, n, m, u, v, a, dscale, dbias);
  else
    tail_backward<false, false>(g, x, scale, dx, n, m, u, v, a, dscale, dbias);
}

const NormSteps* Steps() {
  static const NormSteps steps{PlaneSums,  PlaneForward,    PlaneBackwardSums, PlaneBackward, RowSums,
                               RowForward, RowBackwardSums, RowBackward,       TailSums,      TailBackward};
  return &steps;
}

}  // namespace HWY_NAMESPACE
}  // namespace pelton::backend::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pelton::backend::cpu {
HWY_EXPORT(Steps);
const NormSteps& norm_steps(device::CpuIsa isa) {
  return *PELTON_SIMD_PICK(isa, Steps)();
}
}  // namespace pelton::backend::cpu
#endif
