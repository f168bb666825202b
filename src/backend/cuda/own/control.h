// SPDX-License-Identifier: Apache-2.0
// The small kernels of control flow inside a recording: they tell conditional nodes whether to go on, count
// iterations, take what an iteration reads from the whole and put what it yields there.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pelton::backend::cuda {

// In device memory. A body reads `iteration` and `go_on` as its first two operands.
struct LoopState {
  int64_t iteration = 0, most = 0;
  bool go_on = true;
};
constexpr int64_t kLoopStateBytes = 256;
static_assert(sizeof(LoopState) <= kLoopStateBytes);

cudaError_t branch_on(cudaGraphConditionalHandle handle, const bool* condition, cudaStream_t stream);
// At most `most` iterations. `trip`: of `trip_bytes` bytes with a sign, or null for no other limit;
// `condition`: or null for true.
cudaError_t begin_loop(cudaGraphConditionalHandle handle, LoopState* state, int64_t most, const void* trip,
                       int trip_bytes, const bool* condition, cudaStream_t stream);
// `go_on`: or null for true.
cudaError_t next_iteration(cudaGraphConditionalHandle handle, LoopState* state, const bool* go_on,
                           cudaStream_t stream);

// The whole as [pieces, count, bytes]: iteration i has the slice [pieces, bytes] at i, backwards at
// count - 1 - i.
struct Slices {
  int64_t pieces = 1, count = 0, bytes = 0;
  bool backwards = false;
};
cudaError_t take_slice(void* slice, const void* whole, const Slices& slices, const LoopState* state,
                       cudaStream_t stream);
cudaError_t put_slice(void* whole, const void* slice, const Slices& slices, const LoopState* state,
                      cudaStream_t stream);

}  // namespace pelton::backend::cuda
