// SPDX-License-Identifier: Apache-2.0
// Depthwise convolution of x[N,H,W,C] with w[R,S,C] (one filter a channel), results [N,P,Q,C], sums in f32;
// on request with the sums of the results over parts of the places, which a mean is made of.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct Depthwise {
  const void* x = nullptr;
  const void* w = nullptr;
  bool fixed_weights = false;  // w is never written while kernels run: it may be read early
  void* y = nullptr;
  float* part_sums = nullptr;  // [N, parts, C] with the parts of depthwise_parts(), or null
  Elem type = Elem::f16;       // of x and w
  Elem y_type = Elem::f16;
  int n = 0, h = 0, w_ = 0, c = 0, p = 0, q = 0, r = 3, s = 3;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
  Epilogue epilogue;
};

// In how many parts the places of an image are summed; 0 where part_sums must be null.
int depthwise_parts(const Depthwise& problem, int multiprocessors);

// Every size; windows of 3x3 and 5x5 at strides 1 and 2 with a multiple of 8 channels (4 in f32) have kernels
// of their own.
cudaError_t depthwise(const Depthwise& problem, int multiprocessors, cudaStream_t stream);

}  // namespace pelton::backend::cuda
