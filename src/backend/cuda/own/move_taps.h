// SPDX-License-Identifier: Apache-2.0
// Small helpers on whole tensors: weights whose taps move, steps applied in place, numbers to time with.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

// [A,B,taps] to [A,taps,B], elements of 2 or 4 bytes.
cudaError_t move_taps(const void* from, void* to, int element_bytes, int64_t a, int64_t b, int64_t taps,
                      cudaStream_t stream);

// y[N,C,P] (or, channels last, [N,P,C]) changed in place.
struct ApplySteps {
  void* y = nullptr;
  Elem type = Elem::f32;
  bool channels_last = false;
  int n = 0, c = 0;
  int64_t places = 0;
  Epilogue epilogue;
};
cudaError_t apply_steps(const ApplySteps& problem, cudaStream_t stream);

// Each row of columns elements of 2 or 4 bytes, at a * a_stride + b * b_stride elements, `rows` times in a
// row: to dense [A,B,rows,columns].
cudaError_t spread_rows(const void* from, void* to, int element_bytes, int a, int b, int rows, int columns,
                        int64_t a_stride, int64_t b_stride, cudaStream_t stream);

// Numbers in (-1, 1), the same each time.
cudaError_t fill_noise(void* to, Elem type, int64_t count, cudaStream_t stream, uint32_t seed = 0);

}  // namespace pelton::backend::cuda
