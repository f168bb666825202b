// SPDX-License-Identifier: Apache-2.0
// Convolution as one matrix product in f32 arithmetic, its left side read where it lies: x[N,H,W,C] and
// w[K,R,S,C], C and K multiples of 4. Rows of the product are pixels of the result. Where tiles are few, a
// cluster of blocks shares out the depth of each and adds up the parts in a fixed order.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct ConvF32 {
  const float* x = nullptr;
  const float* w = nullptr;
  void* y = nullptr;  // [N,P,Q,K]
  Elem y_type = Elem::f32;
  int n = 0, h = 0, w_ = 0, c = 0, p = 0, q = 0, k = 0, r = 1, s = 1;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
  Epilogue epilogue;
};
// Rows of the product, n * p * q, must stay below 2^31.

// A way to run it: a tile shape and how many blocks share the depth of a tile.
int conv_f32_configurations();
// "64x32 by 4": rows and columns of a block's tile, blocks of a tile.
const char* conv_f32_name(int configuration);
// Estimate of the time in nanoseconds; only its order among configurations counts.
double conv_f32_cost(const ConvF32& problem, int configuration, int multiprocessors);
cudaError_t conv_f32(const ConvF32& problem, int configuration, cudaStream_t stream);

}  // namespace pelton::backend::cuda
