// SPDX-License-Identifier: Apache-2.0
// Blocks of one grid that all run at the same time and wait for each other.
#pragma once

#include <cuda_runtime.h>

namespace pelton::backend::cuda {

// A barrier of `blocks` blocks over a counter in device memory that is 0 at the start. What a block wrote
// before it arrives is seen by those that have waited, by load_fresh().
class BlocksBarrier {
 public:
  __device__ BlocksBarrier(unsigned* counter, unsigned blocks) : counter_(counter), blocks_(blocks) {}
  // All threads, after the block's own barrier.
  __device__ __forceinline__ void arrive() {
    expected_ += blocks_;
    if (threadIdx.x != 0) return;
    __threadfence();
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter_), "r"(1u) : "memory");
  }
  __device__ __forceinline__ void wait() {
    if (threadIdx.x == 0) {
      unsigned now;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter_) : "memory");
      } while (static_cast<int>(now - expected_) < 0);
    }
    __syncthreads();
  }

 private:
  unsigned* counter_;
  unsigned blocks_, expected_ = 0;
};

// What another block of the grid may have written: not from this multiprocessor's own cache.
__device__ __forceinline__ float load_fresh(const float* p) {
  return __ldcg(p);
}
__device__ __forceinline__ void load_fresh_4(const float* p, float (&out)[4]) {
  const float4 v = __ldcg(reinterpret_cast<const float4*>(p));
  out[0] = v.x;
  out[1] = v.y;
  out[2] = v.z;
  out[3] = v.w;
}
__device__ __forceinline__ float from_lane(float x, int difference) {
  return __shfl_xor_sync(0xFFFFFFFFu, x, difference);
}

// The launch fails rather than start a grid that does not fit the GPU at once.
template <class... Parameters, class... Arguments>
cudaError_t launch_together(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                            cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchAttribute together;
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &together;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

}  // namespace pelton::backend::cuda
