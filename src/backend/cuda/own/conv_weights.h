// SPDX-License-Identifier: Apache-2.0
// The gradient of a convolution's weights, a block an element: every size, layout, grouping and pad, for what
// nothing faster takes. Up to three spatial axes; unused ones have size 1.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct ConvWeights {
  const void *g = nullptr, *x = nullptr;
  void* dw = nullptr;  // [K,C/groups,taps]
  Elem type = Elem::f32, result_type = Elem::f32;
  bool g_channels_last = false, x_channels_last = false;
  int n = 0, c = 0, k = 0, groups = 1;
  int in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, low[3] = {};
};
cudaError_t conv_weights(const ConvWeights& problem, cudaStream_t stream);
// What the gradient is judged by: its sums in f64, and as f32 makes them one after the other.
cudaError_t conv_weights_exact(const ConvWeights& problem, double* exact, float* plain, cudaStream_t stream);

// [A,taps,B] to [A,B,taps], from one float type to another.
cudaError_t taps_last(const void* from, Elem from_type, void* to, Elem to_type, int64_t a, int64_t b,
                      int64_t taps, cudaStream_t stream);

// [A,taps] to [taps,A] with the last tap first, elements of 2 or 4 bytes.
cudaError_t taps_turned(const void* from, void* to, int element_bytes, int64_t a, int64_t taps,
                        cudaStream_t stream);

}  // namespace pelton::backend::cuda
