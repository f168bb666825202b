// SPDX-License-Identifier: Apache-2.0
// Convolution and transposed convolution one result a thread: every size, layout, grouping and pad, for what
// nothing faster takes. Up to three spatial axes; unused ones have size 1.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct DirectConv {
  const void* x = nullptr;
  const void* w = nullptr;  // [K,C/groups,taps]; transposed: [C,K/groups,taps]
  void* y = nullptr;
  Elem type = Elem::f32, y_type = Elem::f32;
  bool transposed = false, x_channels_last = false, y_channels_last = false;
  int n = 0, c = 0, k = 0, groups = 1;
  int in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, low[3] = {};
  Epilogue epilogue;
};
cudaError_t direct_conv(const DirectConv& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
