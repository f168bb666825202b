// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/own/gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/own/gemm.cc"
#include "backend/cpu/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pelton::backend::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3
constexpr int kRows = 6, kVectors = 4;
#elif HWY_TARGET == HWY_AVX2
constexpr int kRows = 6, kVectors = 2;
#else
constexpr int kRows = 4, kVectors = 2;
#endif

// R rows by V vectors of c, held in registers while k runs.
template <int R, int V>
HWY_INLINE void block(int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                      int64_t ldc, bool add) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) sum[r][v] = add ? hn::LoadU(d, c + r * ldc + v * lanes) : hn::Zero(d);
  for (int64_t i = 0; i < k; ++i) {
    hn::Vec<decltype(d)> row[V];
    for (int v = 0; v < V; ++v) row[v] = hn::LoadU(d, b + i * ldb + v * lanes);
    for (int r = 0; r < R; ++r) {
      const auto x = hn::Set(d, a[r * lda + i]);
      for (int v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(x, row[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) hn::StoreU(sum[r][v], d, c + r * ldc + v * lanes);
}

template <int R>
HWY_INLINE void rows(int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                     int64_t ldc, bool add) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  int64_t j = 0;
  for (; j + kVectors * lanes <= n; j += kVectors * lanes)
    block<R, kVectors>(k, a, lda, b + j, ldb, c + j, ldc, add);
  for (; j + lanes <= n; j += lanes) block<R, 1>(k, a, lda, b + j, ldb, c + j, ldc, add);
  for (; j < n; ++j)
    for (int r = 0; r < R; ++r) {
      float sum = add ? c[r * ldc + j] : 0.0f;
      for (int64_t i = 0; i < k; ++i) sum += a[r * lda + i] * b[i * ldb + j];
      c[r * ldc + j] = sum;
    }
}

void gemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
          int64_t ldc, bool add) {
  for (; m >= kRows; m -= kRows, a += kRows * lda, c += kRows * ldc)
    rows<kRows>(n, k, a, lda, b, ldb, c, ldc, add);
  for (; m >= 2; m -= 2, a += 2 * lda, c += 2 * ldc) rows<2>(n, k, a, lda, b, ldb, c, ldc, add);
  if (m) rows<1>(n, k, a, lda, b, ldb, c, ldc, add);
}

}  // namespace pelton::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pelton::backend::cpu {

GemmFunction gemm_function(device::CpuIsa isa) {
  return PELTON_SIMD_PICK(isa, gemm);
}

}  // namespace pelton::backend::cpu
#endif
