// SPDX-License-Identifier: Apache-2.0
// The small kernels of control flow inside a recording: they tell conditional nodes whether to go on, count
// iterations, and put what an iteration yields behind what those before it yielded.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pelton::backend::cuda {

// In device memory. A body reads `iteration` and `go_on` as its first two operands.
struct LoopState {
  int64_t iteration = 0, most = 0;
  bool go_on = true;
};

cudaError_t branch_on(cudaGraphConditionalHandle handle, const bool* condition, cudaStream_t stream);
// `trip`: of `trip_bytes` bytes with a sign, or null for no limit; `condition`: or null for true.
cudaError_t begin_loop(cudaGraphConditionalHandle handle, LoopState* state, const void* trip, int trip_bytes,
                       const bool* condition, cudaStream_t stream);
cudaError_t next_iteration(cudaGraphConditionalHandle handle, LoopState* state, const bool* go_on,
                           cudaStream_t stream);
// rows[state->iteration] = row.
cudaError_t store_row(void* rows, const void* row, int64_t row_bytes, const LoopState* state,
                      cudaStream_t stream);

}  // namespace pelton::backend::cuda
