// SPDX-License-Identifier: Apache-2.0
// Gradients of layer_norm and rms_norm over rows that lie dense: x, g, dx [rows, size]. Gradients of scale
// and bias are sums over the rows, in f32 and in a fixed order: the same bits each time.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct RowsBackward {
  const void *g = nullptr, *x = nullptr, *scale = nullptr;  // scale [size] of scale_type, or null
  const float *mean = nullptr, *rstd = nullptr;             // [rows]; no mean: rms_norm
  const void* added = nullptr;                              // as dx, added to it; or null
  void *dx = nullptr, *dscale = nullptr, *dbias = nullptr;  // the last two [size] of parameter_type, or null
  float* scratch = nullptr;                                 // rows_backward_scratch_bytes()
  Elem type = Elem::f16, scale_type = Elem::f32, parameter_type = Elem::f32;
  int64_t rows = 0, size = 0;
  int multiprocessors = 132;
  bool parameters = false;  // dscale or dbias are wanted
};
int64_t rows_backward_scratch_bytes(const RowsBackward& problem);
cudaError_t rows_backward(const RowsBackward& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
