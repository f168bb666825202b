// SPDX-License-Identifier: Apache-2.0
// Launches by the house rule: a kernel may start while the one before it in the stream still runs, and waits
// for it (inputs_ready) before it touches anything that a kernel wrote or still reads.
#pragma once

#include <cuda_runtime.h>

namespace pelton::backend::cuda {

// Everything before this in the stream is complete and visible from here on.
__device__ __forceinline__ void inputs_ready() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// The next kernel in the stream may begin to start.
__device__ __forceinline__ void let_next_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits for `threads` threads of the block, whole warps, that name the same barrier of 1 to 15.
__device__ __forceinline__ void named_barrier(int which, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(which), "r"(threads) : "memory");
}

template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                   cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchAttribute overlap;
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

}  // namespace pelton::backend::cuda
