// SPDX-License-Identifier: Apache-2.0
// Gradients of a depthwise convolution of x[N,H,W,C] with one filter a channel, whose result g[N,P,Q,C] had:
// by the data, and by the weights in a fixed order of sums (the same bits each time). Sums in f32.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct DepthwiseBackward {
  const void* g = nullptr;
  const void* other = nullptr;  // by the data: w[R,S,C]; by the weights: x[N,H,W,C]
  void* result = nullptr;       // dx[N,H,W,C]; dw[C,R,S]
  Elem type = Elem::f16;        // of the operands
  Elem result_type = Elem::f16;
  int n = 0, h = 0, w = 0, c = 0, p = 0, q = 0, r = 3, s = 3;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
  Epilogue epilogue;  // by the data only
};

// Every size; windows of 3x3 and 5x5 at strides 1 and 2 with a multiple of 8 channels (4 in f32) have kernels
// of their own.
cudaError_t depthwise_backward_data(const DepthwiseBackward& problem, cudaStream_t stream);

// `partial`: depthwise_partial_bytes() of scratch.
int64_t depthwise_partial_bytes(const DepthwiseBackward& problem, int multiprocessors);
cudaError_t depthwise_backward_weights(const DepthwiseBackward& problem, float* partial, int multiprocessors,
                                       cudaStream_t stream);

// Windows of 3x3 and 5x5 at strides 1 and 2, a multiple of v channels.
bool depthwise_has_window(const DepthwiseBackward& problem, int v);
// dw from partial[blocks][R S][C].
cudaError_t depthwise_add_partial(const DepthwiseBackward& problem, const float* partial, int blocks,
                                  cudaStream_t stream);

}  // namespace pelton::backend::cuda
