// SPDX-License-Identifier: Apache-2.0
// The inner product loops of the reference contraction and convolution: blocked, one accumulator an output,
// terms added in the order of k.
#pragma once

#include <cstdint>
#include <functional>

namespace pelton::ir {

// c[M,N] += a[M,K] * b[K,N], row-major and dense; integers wrap.
void reference_gemm(int64_t m, int64_t n, int64_t k, const double* a, const double* b, double* c);
void reference_gemm(int64_t m, int64_t n, int64_t k, const uint64_t* a, const uint64_t* b, uint64_t* c);

}  // namespace pelton::ir
