// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/gemm.h"

#include <algorithm>

#include "base/thread_pool.h"

namespace pelton::ir {
namespace {

constexpr int64_t kRows = 4;      // rows of c that share one pass over a block of b
constexpr int64_t kBlockK = 128;  // a block of b is 128 x 128 doubles: it stays in L2
constexpr int64_t kBlockN = 128;
constexpr int64_t kRowGrain = 64;  // rows a task

template <class T, int Rows>
void block(int64_t n, int64_t k, const T* a, int64_t a_stride, const T* b, int64_t b_stride, T* c,
           int64_t c_stride) {
  for (int64_t p = 0; p < k; ++p) {
    const T* row = b + p * b_stride;
    T x[Rows];
    for (int r = 0; r < Rows; ++r) x[r] = a[r * a_stride + p];
    for (int64_t j = 0; j < n; ++j)
      for (int r = 0; r < Rows; ++r) c[r * c_stride + j] += x[r] * row[j];
  }
}

template <class T>
void rows(int64_t m, int64_t n, int64_t k, const T* a, const T* b, T* c) {
  for (int64_t j = 0; j < n; j += kBlockN)
    for (int64_t p = 0; p < k; p += kBlockK) {
      int64_t width = std::min(kBlockN, n - j), depth = std::min(kBlockK, k - p);
      const T* panel = b + p * n + j;
      int64_t i = 0;
      for (; i + kRows <= m; i += kRows)
        block<T, kRows>(width, depth, a + i * k + p, k, panel, n, c + i * n + j, n);
      for (; i < m; ++i) block<T, 1>(width, depth, a + i * k + p, k, panel, n, c + i * n + j, n);
    }
}

template <class T>
void gemm(int64_t m, int64_t n, int64_t k, const T* a, const T* b, T* c) {
  if (m * n == 0 || k == 0) return;
  if (static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) < 1e5)
    return rows(m, n, k, a, b, c);
  parallel_for(0, m, kRowGrain,
               [&](int64_t from, int64_t to) { rows(to - from, n, k, a + from * k, b, c + from * n); });
}

}  // namespace

void reference_gemm(int64_t m, int64_t n, int64_t k, const double* a, const double* b, double* c) {
  gemm(m, n, k, a, b, c);
}
void reference_gemm(int64_t m, int64_t n, int64_t k, const uint64_t* a, const uint64_t* b, uint64_t* c) {
  gemm(m, n, k, a, b, c);
}

}  // namespace pelton::ir
