// SPDX-License-Identifier: Apache-2.0
// Columns at the edges of a product of rows: y[r, c] = alpha * sum over k of a[r, k] b[c, k], where columns
// in the middle are somebody else's. Row r leaves out those from step * (r mod units), `middle` of them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct EdgeColumns {
  const void *a = nullptr, *b = nullptr;  // rows of k elements, 16-byte aligned
  void* y = nullptr;                      // rows of `columns` elements, dense
  Elem in = Elem::f16, out = Elem::f16;
  int64_t rows = 0, columns = 0, k = 0;  // k * the bytes of an element is a multiple of 16
  int64_t units = 1, step = 0, middle = 0;
  float alpha = 1;
};
cudaError_t edge_columns(const EdgeColumns& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
