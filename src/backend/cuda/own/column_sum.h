// SPDX-License-Identifier: Apache-2.0
// y[C] = sums over the rows of x[rows, C], in f32 and in one order: the same bits each time.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct ColumnSum {
  const void* x = nullptr;
  void* y = nullptr;
  float* scratch = nullptr;  // column_sum_scratch_bytes()
  Elem type = Elem::f16, y_type = Elem::f16;
  int64_t rows = 0, c = 0;
  int multiprocessors = 132;
};
int64_t column_sum_scratch_bytes(const ColumnSum& problem);
cudaError_t column_sum(const ColumnSum& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
