// SPDX-License-Identifier: Apache-2.0
// dw[M, N] = the sum over rows of g[rows, M]^T x[rows, N] in f16 or bf16, M and N multiples of 8: gradients
// of weights where rows are many and both sides few, so that a library's tiles leave most of the GPU idle and
// the data is all there is to wait for. Blocks share out the rows, sums are in f32 and in one order.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct RowsProduct {
  const void *g = nullptr, *x = nullptr;  // 16-byte aligned
  void* dw = nullptr;
  float* scratch = nullptr;                          // rows_product_scratch_bytes()
  Elem type = Elem::bf16, result_type = Elem::bf16;  // of g and x; of dw
  int64_t rows = 0;
  int m = 0, n = 0;
  int multiprocessors = 132;
};
// How the work is shared out: tiles of dw, each in so many parts of the rows.
struct RowsProductShares {
  int tile_m = 64, tile_n = 64, tiles = 1, parts = 1;
  int64_t rows_each = 0;  // a multiple of the rows that a block holds at a time
};
RowsProductShares rows_product_shares(const RowsProduct& problem);
int64_t rows_product_scratch_bytes(const RowsProduct& problem);
cudaError_t rows_product(const RowsProduct& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
