// SPDX-License-Identifier: Apache-2.0
// Blocks of one grid that all run at the same time and hand each other numbers through device memory. A
// number travels with a tag in one piece of 8 bytes: who wants it reads until the tag is the one expected.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/own/tagged.h"

namespace pelton::backend::cuda {

__device__ __forceinline__ void publish(Tagged* to, float value, uint32_t tag) {
  const uint64_t both = static_cast<uint64_t>(tag) << 32 | __float_as_uint(value);
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(both) : "memory");
}
__device__ __forceinline__ bool unpack(uint64_t both, uint32_t tag, float& value) {
  value = __uint_as_float(static_cast<uint32_t>(both));
  return both >> 32 == tag;
}
// Whether the number is there.
__device__ __forceinline__ bool take_tagged(const Tagged* from, uint32_t tag, float& value) {
  uint64_t both;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(both) : "l"(from) : "memory");
  return unpack(both, tag, value);
}
// Whether all four are; the address is a multiple of 16 bytes.
__device__ __forceinline__ bool take_tagged_4(const Tagged* from, uint32_t tag, float (&values)[4]) {
  bool all = true;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    uint64_t both[2];
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
                 : "=l"(both[0]), "=l"(both[1])
                 : "l"(from + i)
                 : "memory");
    all &= unpack(both[0], tag, values[i]);
    all &= unpack(both[1], tag, values[i + 1]);
  }
  return all;
}
// Before looking again.
__device__ __forceinline__ void look_again() {}

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
