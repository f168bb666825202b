// SPDX-License-Identifier: Apache-2.0
// f32 products of row-major matrices that lie as they are, for small sizes and inner loops of other kernels.
#pragma once

#include <cstdint>

#include "device/target.h"

namespace pelton::backend::cpu {

// c[m, n] = a[m, k] b[k, n], or added to c; sums run over k in order. On the calling thread.
using GemmFunction = void (*)(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
                              int64_t ldb, float* c, int64_t ldc, bool add);
GemmFunction gemm_function(device::CpuIsa isa);

}  // namespace pelton::backend::cpu
