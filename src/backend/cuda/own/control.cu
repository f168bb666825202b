// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/control.h"

#include <algorithm>

namespace pelton::backend::cuda {
namespace {

__global__ void branch_kernel(cudaGraphConditionalHandle handle, const bool* condition) {
  cudaGraphSetConditional(handle, *condition ? 1 : 0);
}

__global__ void begin_kernel(cudaGraphConditionalHandle handle, LoopState* state, const void* trip,
                             int trip_bytes, const bool* condition) {
  state->iteration = 0;
  state->most = !trip             ? INT64_MAX
                : trip_bytes == 8 ? *static_cast<const int64_t*>(trip)
                                  : *static_cast<const int32_t*>(trip);
  state->go_on = condition ? *condition : true;
  cudaGraphSetConditional(handle, state->go_on && state->most > 0 ? 1 : 0);
}

__global__ void next_kernel(cudaGraphConditionalHandle handle, LoopState* state, const bool* go_on) {
  state->go_on = *go_on;
  ++state->iteration;
  cudaGraphSetConditional(handle, state->go_on && state->iteration < state->most ? 1 : 0);
}

__global__ void row_kernel(char* rows, const char* row, int64_t bytes, const LoopState* state) {
  char* const to = rows + state->iteration * bytes;
  for (int64_t i = int64_t{1} * blockIdx.x * blockDim.x + threadIdx.x; i < bytes;
       i += int64_t{1} * gridDim.x * blockDim.x)
    to[i] = row[i];
}

}  // namespace

// Launched without overlap: everything before is complete when they start.
cudaError_t branch_on(cudaGraphConditionalHandle handle, const bool* condition, cudaStream_t stream) {
  branch_kernel<<<1, 1, 0, stream>>>(handle, condition);
  return cudaGetLastError();
}
cudaError_t begin_loop(cudaGraphConditionalHandle handle, LoopState* state, const void* trip, int trip_bytes,
                       const bool* condition, cudaStream_t stream) {
  begin_kernel<<<1, 1, 0, stream>>>(handle, state, trip, trip_bytes, condition);
  return cudaGetLastError();
}
cudaError_t next_iteration(cudaGraphConditionalHandle handle, LoopState* state, const bool* go_on,
                           cudaStream_t stream) {
  next_kernel<<<1, 1, 0, stream>>>(handle, state, go_on);
  return cudaGetLastError();
}
cudaError_t store_row(void* rows, const void* row, int64_t row_bytes, const LoopState* state,
                      cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>((row_bytes + 255) / 256, 1, 1024));
  row_kernel<<<blocks, 256, 0, stream>>>(static_cast<char*>(rows), static_cast<const char*>(row), row_bytes,
                                         state);
  return cudaGetLastError();
}

}  // namespace pelton::backend::cuda
