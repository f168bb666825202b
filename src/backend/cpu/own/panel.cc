// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/own/panel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/own/panel.cc"
#include "backend/cpu/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pelton::backend::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
// Three vectors of columns by eight rows fill the 32 registers of AVX-512, two by six the 16 of AVX2.
#if HWY_TARGET == HWY_AVX3
constexpr int64_t kVectors = 3, kBlock = 8;
#elif HWY_TARGET == HWY_AVX2
constexpr int64_t kVectors = 2, kBlock = 6;
#else
constexpr int64_t kVectors = 4, kBlock = 2;
#endif
HWY_INLINE int64_t f32_columns() {
  return kVectors * static_cast<int64_t>(hn::Lanes(DF()));
}

template <int R>
HWY_INLINE void f32_rows(int64_t k, const float* a, int64_t lda, const float* panel, float* out) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), columns = kVectors * lanes;
  hn::Vec<DF> sum[R][kVectors];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  for (int64_t i = 0; i < k; ++i) {
    hn::Vec<DF> b[kVectors];
    for (int v = 0; v < kVectors; ++v) b[v] = hn::LoadU(d, panel + i * columns + v * lanes);
    for (int r = 0; r < R; ++r) {
      const auto x = hn::Set(d, a[r * lda + i]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(x, b[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, out + r * columns + v * lanes);
}
void f32_panel(int64_t rows, int64_t k, const void* a, int64_t lda, const void* panel, void* out) {
  const auto* x = static_cast<const float*>(a);
  const auto* b = static_cast<const float*>(panel);
  auto* y = static_cast<float*>(out);
  const int64_t columns = f32_columns();
  while (rows >= kBlock) {
    f32_rows<kBlock>(k, x, lda, b, y);
    rows -= kBlock;
    x += kBlock * lda;
    y += kBlock * columns;
  }
  for (; rows >= 2; rows -= 2, x += 2 * lda, y += 2 * columns) f32_rows<2>(k, x, lda, b, y);
  if (rows) f32_rows<1>(k, x, lda, b, y);
}

constexpr int64_t kWideColumns = 16;
// Sums of T as U (unsigned for integers, so that they wrap).
template <class T, class U>
void wide_panel(int64_t rows, int64_t k, const void* a, int64_t lda, const void* panel, void* out) {
  const T *x = static_cast<const T*>(a), *b = static_cast<const T*>(panel);
  T* y = static_cast<T*>(out);
  for (int64_t r = 0; r < rows; ++r) {
    U sum[kWideColumns] = {};
    for (int64_t i = 0; i < k; ++i) {
      const U f = static_cast<U>(x[r * lda + i]);
      for (int64_t c = 0; c < kWideColumns; ++c) sum[c] += f * static_cast<U>(b[i * kWideColumns + c]);
    }
    for (int64_t c = 0; c < kWideColumns; ++c) y[r * kWideColumns + c] = static_cast<T>(sum[c]);
  }
}

int64_t columns_of(Lane lane) {
  return lane == Lane::f32 ? f32_columns() : kWideColumns;
}
PanelFunction find_panel(Lane lane) {
  if (lane == Lane::f32) return f32_panel;
  return lane == Lane::f64 ? wide_panel<double, double> : wide_panel<int64_t, uint64_t>;
}

}  // namespace pelton::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pelton::backend::cpu {

int64_t panel_columns(Lane lane, device::CpuIsa isa) {
  return PELTON_SIMD_PICK(isa, columns_of)(lane);
}
PanelFunction panel_function(Lane lane, device::CpuIsa isa) {
  return PELTON_SIMD_PICK(isa, find_panel)(lane);
}

}  // namespace pelton::backend::cpu
#endif
