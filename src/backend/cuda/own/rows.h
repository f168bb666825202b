// SPDX-License-Identifier: Apache-2.0
// Norms and softmax over rows that lie dense: x[rows, size]. A row is read once and kept in registers where
// it fits; sums are f32.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct Rows {
  enum Op : uint8_t { layer_norm, rms_norm, softmax, log_softmax } op = softmax;
  const void* x = nullptr;
  void* y = nullptr;
  const void *scale = nullptr, *bias = nullptr;  // [size] of parameter_type, or null
  float *mean = nullptr, *rstd = nullptr;        // [rows] or null
  Elem type = Elem::f16, parameter_type = Elem::f16;
  int64_t rows = 0;
  int size = 0;
  float eps = 0;
};
cudaError_t normalize_rows(const Rows& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
