// SPDX-License-Identifier: Apache-2.0
// Blocks of one grid that all run at the same time and hand each other numbers through device memory. A
// number travels with a tag in one piece of 8 bytes: who wants it reads until the tag is the one expected.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "backend/cuda/own/tagged.h"

namespace pelton::backend::cuda {

__device__ __forceinline__ void publish(Tagged* to, float value, uint32_t tag) {
  asm volatile("st.volatile.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(__float_as_uint(value)), "r"(tag)
               : "memory");
}
// Whether the number is there.
__device__ __forceinline__ bool take_tagged(const Tagged* from, uint32_t tag, float& value) {
  uint32_t bits, found;
  asm volatile("ld.volatile.global.v2.b32 {%0, %1}, [%2];" : "=r"(bits), "=r"(found) : "l"(from) : "memory");
  value = __uint_as_float(bits);
  return found == tag;
}
// Whether all four are; the address is a multiple of 16 bytes.
__device__ __forceinline__ bool take_tagged_4(const Tagged* from, uint32_t tag, float (&values)[4]) {
  bool all = true;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    uint32_t bits[2], found[2];
    asm volatile("ld.volatile.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits[0]), "=r"(found[0]), "=r"(bits[1]), "=r"(found[1])
                 : "l"(from + i)
                 : "memory");
    values[i] = __uint_as_float(bits[0]);
    values[i + 1] = __uint_as_float(bits[1]);
    all &= found[0] == tag && found[1] == tag;
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
