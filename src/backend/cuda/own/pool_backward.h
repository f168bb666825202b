// SPDX-License-Identifier: Apache-2.0
// Gradients of pooling by its data, gathered place by place in a fixed order.
#pragma once

#include "backend/cuda/own/pool.h"

namespace pelton::backend::cuda {

// `window`: sizes of the pooling; x its data (null for averages), y the gradient of the data. g lies as the
// pooling's result. `taps`: pool_backward_scratch_bytes() of scratch.
struct PoolBackward {
  Pool window;
  const void* g = nullptr;
  uint16_t* taps = nullptr;
};
int64_t pool_backward_scratch_bytes(const Pool& window);
cudaError_t pool_backward(const PoolBackward& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
