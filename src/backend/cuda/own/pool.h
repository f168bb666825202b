// SPDX-License-Identifier: Apache-2.0
// Max and average pooling over up to three spatial axes (unused ones have size 1), plain or channels last,
// and the mean over all places of channels-last data.
#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct Pool {
  const void* x = nullptr;
  void* y = nullptr;
  int64_t* index =
      nullptr;  // max: where in x each result came from, -1 for a window in the pads; may be null
  Elem type = Elem::f32;
  bool max = true, channels_last = false, count_padding = false, row_major = true;
  int n = 0, c = 0;
  int in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  int kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, low[3] = {}, high[3] = {};
};
cudaError_t pool(const Pool& problem, cudaStream_t stream);

// x[N,P,C] to y[N,C].
struct ChannelMean {
  const void* x = nullptr;
  void* y = nullptr;
  Elem type = Elem::f16;
  int n = 0, places = 0, c = 0;
  bool sum = false;  // without the division
};
cudaError_t channel_mean(const ChannelMean& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
