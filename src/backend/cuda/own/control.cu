// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/control.h"

#include <algorithm>

namespace pelton::backend::cuda {
namespace {

__global__ void branch_kernel(cudaGraphConditionalHandle handle, const bool* condition) {
  cudaGraphSetConditional(handle, *condition ? 1 : 0);
}

__global__ void begin_kernel(cudaGraphConditionalHandle handle, LoopState* state, int64_t most,
                             const void* trip, int trip_bytes, const bool* condition) {
  state->iteration = 0;
  const int64_t given = !trip             ? most
                        : trip_bytes == 8 ? *static_cast<const int64_t*>(trip)
                                          : *static_cast<const int32_t*>(trip);
  state->most = given < most ? given : most;
  state->go_on = condition ? *condition : true;
  cudaGraphSetConditional(handle, state->go_on && state->most > 0 ? 1 : 0);
}

__global__ void next_kernel(cudaGraphConditionalHandle handle, LoopState* state, const bool* go_on) {
  state->go_on = go_on ? *go_on : true;
  ++state->iteration;
  cudaGraphSetConditional(handle, state->go_on && state->iteration < state->most ? 1 : 0);
}

template <class Word, bool kTake>
__global__ void slice_kernel(Word* slice, Word* whole, const Slices s, const LoopState* state) {
  const int64_t words = s.bytes / static_cast<int64_t>(sizeof(Word));
  const int64_t at = s.backwards ? s.count - 1 - state->iteration : state->iteration;
  for (int64_t i = int64_t{1} * blockIdx.x * blockDim.x + threadIdx.x; i < s.pieces * words;
       i += int64_t{1} * gridDim.x * blockDim.x) {
    Word* const there = whole + (i / words * s.count + at) * words + i % words;
    if (kTake)
      slice[i] = *there;
    else
      *there = slice[i];
  }
}

template <class Word, bool kTake>
cudaError_t move_slice(void* slice, void* whole, const Slices& s, const LoopState* state,
                       cudaStream_t stream) {
  const int64_t words = s.pieces * s.bytes / static_cast<int64_t>(sizeof(Word));
  if (words == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>((words + 255) / 256, 1, 1024));
  slice_kernel<Word, kTake>
      <<<blocks, 256, 0, stream>>>(static_cast<Word*>(slice), static_cast<Word*>(whole), s, state);
  return cudaGetLastError();
}

}  // namespace

// Launched without overlap: everything before is complete when they start.
cudaError_t branch_on(cudaGraphConditionalHandle handle, const bool* condition, cudaStream_t stream) {
  branch_kernel<<<1, 1, 0, stream>>>(handle, condition);
  return cudaGetLastError();
}
cudaError_t begin_loop(cudaGraphConditionalHandle handle, LoopState* state, int64_t most, const void* trip,
                       int trip_bytes, const bool* condition, cudaStream_t stream) {
  begin_kernel<<<1, 1, 0, stream>>>(handle, state, most, trip, trip_bytes, condition);
  return cudaGetLastError();
}
cudaError_t next_iteration(cudaGraphConditionalHandle handle, LoopState* state, const bool* go_on,
                           cudaStream_t stream) {
  next_kernel<<<1, 1, 0, stream>>>(handle, state, go_on);
  return cudaGetLastError();
}
cudaError_t take_slice(void* slice, const void* whole, const Slices& s, const LoopState* state,
                       cudaStream_t stream) {
  auto* const from = const_cast<void*>(whole);
  return s.bytes % 4 == 0 ? move_slice<uint32_t, true>(slice, from, s, state, stream)
                          : move_slice<uint8_t, true>(slice, from, s, state, stream);
}
cudaError_t put_slice(void* whole, const void* slice, const Slices& s, const LoopState* state,
                      cudaStream_t stream) {
  auto* const from = const_cast<void*>(slice);
  return s.bytes % 4 == 0 ? move_slice<uint32_t, false>(from, whole, s, state, stream)
                          : move_slice<uint8_t, false>(from, whole, s, state, stream);
}

}  // namespace pelton::backend::cuda
