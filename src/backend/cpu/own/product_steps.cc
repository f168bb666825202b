// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/own/product_steps.h"

#include <algorithm>

#include "hwy/cache_control.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/own/product_steps.cc"
#include "backend/cpu/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pelton::backend::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
namespace {
// Three vectors of columns by eight rows fill the 32 registers of AVX-512, two by six the 16 of AVX2.
#if HWY_TARGET == HWY_AVX3
constexpr int kVectors = 3, kRows = 8;
#elif HWY_TARGET == HWY_AVX2
constexpr int kVectors = 2, kRows = 6;
#else
constexpr int kVectors = 4, kRows = 2;
#endif
constexpr int kLine = HWY_TARGET == HWY_AVX3 ? 1 : 2;  // vectors of a line of the cache
constexpr int64_t kAhead = 32;                         // rows
HWY_INLINE int64_t lanes() {
  return static_cast<int64_t>(hn::Lanes(D()));
}

// R rows by P panels. Few rows take several panels, or the latency of the additions would show.
template <int R, int P>
HWY_INLINE void tile(const Strip& s, const float* a, const float* b, float* y, const float* bias) {
  const D d;
  V sum[R][P][kVectors];
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p)
      for (int v = 0; v < kVectors; ++v) sum[r][p][v] = hn::Zero(d);
  for (int64_t i = 0; i < s.k; ++i, a += s.a_step, b += s.b_row) {
    V row[P][kVectors];
    for (int p = 0; p < P; ++p)
      for (int v = 0; v < kVectors; ++v) row[p][v] = hn::LoadU(d, b + p * s.b_panel + v * lanes());
    // What a later step reads is fetched; the processor does that by itself where few rows read it.
    if (P == 1)
      for (int v = 0; v < kVectors; v += kLine) hwy::Prefetch(b + kAhead * s.b_row + v * lanes());
    for (int r = 0; r < R; ++r) {
      const V x = hn::Set(d, a[r * s.a_row]);
      for (int p = 0; p < P; ++p)
        for (int v = 0; v < kVectors; ++v) sum[r][p][v] = hn::MulAdd(x, row[p][v], sum[r][p][v]);
    }
  }
  const V low = hn::Set(d, s.low);
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p)
      for (int v = 0; v < kVectors; ++v) {
        float* to = y + r * s.y_row + (p * kVectors + v) * lanes();
        V out = s.add ? hn::Add(hn::LoadU(d, to), sum[r][p][v]) : sum[r][p][v];
        if (bias) out = hn::Add(out, hn::LoadU(d, bias + (p * kVectors + v) * lanes()));
        // A NaN stays one.
        hn::StoreU(hn::IfThenElse(hn::Lt(out, low), low, out), d, to);
      }
}

template <int R>
void rows(const Strip& s, int64_t m, const float* a, const float* b, float* y, const float* bias) {
  if constexpr (R > 1)
    if (m < R) return rows<R - 1>(s, m, a, b, y, bias);
  tile<R, 1>(s, a, b, y, bias);
}

void multiply(const Strip& s) {
  const int64_t columns = kVectors * lanes(), blocks = (s.m + kRows - 1) / kRows;
  const int64_t group = s.m == 1 ? 4 : s.m == 2 ? 2 : 1;
  // A part of a panel's columns goes by way of a whole one.
  alignas(64) float whole[kRows * kVectors * 16] = {};
  Strip last = s;
  last.y_row = columns;
  last.add = false;
  last.low = -std::numeric_limits<float>::infinity();
  const float* b = s.b;
  for (int64_t j = 0, panels; j < s.n; j += panels * columns, b += panels * s.b_panel) {
    panels = s.n - j >= group * columns ? group : 1;
    const float* bias = s.bias ? s.bias + j : nullptr;
    if (panels == 4) {
      tile<1, 4>(s, s.a, b, s.y + j, bias);
      continue;
    }
    if (panels == 2) {
      tile<2, 2>(s, s.a, b, s.y + j, bias);
      continue;
    }
    // As even parts of the rows as there can be.
    const float* a = s.a;
    float* y = s.y + j;
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t m = s.m / blocks + (i < s.m % blocks);
      if (s.n - j >= columns) {
        rows<kRows>(s, m, a, b, y, bias);
      } else {
        rows<kRows>(last, m, a, b, whole, nullptr);
        for (int64_t r = 0; r < m; ++r)
          for (int64_t c = 0; c < s.n - j; ++c) {
            float& to = y[r * s.y_row + c];
            float sum = whole[r * columns + c];
            if (s.add) sum += to;
            if (bias) sum += bias[c];
            to = sum < s.low ? s.low : sum;
          }
      }
      a += m * s.a_row;
      y += m * s.y_row;
    }
  }
}

void pack(const float* b, int64_t row, int64_t step, int64_t k, int64_t count, float* panel) {
  const int64_t columns = kVectors * lanes();
  const D d;
  if (step == 1 && count == columns) {
    for (int64_t i = 0; i < k; ++i, b += row, panel += columns)
      for (int v = 0; v < kVectors; ++v) hn::StoreU(hn::LoadU(d, b + v * lanes()), d, panel + v * lanes());
    return;
  }
  for (int64_t i = 0; i < k; ++i, b += row, panel += columns)
    for (int64_t j = 0; j < columns; ++j) panel[j] = j < count ? b[j * step] : 0.0f;
}

}  // namespace

ProductSteps steps_of_products() {
  return {kVectors * lanes(), kRows, multiply, pack};
}

}  // namespace pelton::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pelton::backend::cpu {

ProductSteps product_steps(device::CpuIsa isa) {
  return PELTON_SIMD_PICK(isa, steps_of_products)();
}

}  // namespace pelton::backend::cpu
#endif
