// SPDX-License-Identifier: Apache-2.0
// Blocks of one cluster (sm_90): they run at the same time and read each other's shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace pelton::backend::cuda {

__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// What a thread wrote before it arrives is seen by every thread of the cluster that has waited.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
// The place of `mine`, which is in shared memory, in that of block `rank`.
template <class T>
__device__ __forceinline__ const T* in_block(const T* mine, int rank) {
  uint64_t there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(reinterpret_cast<uint64_t>(mine)), "r"(rank));
  return reinterpret_cast<const T*>(there);
}
// The shared memory that the launch asked for.
__device__ __forceinline__ unsigned char* launched_shared() {
  extern __shared__ __align__(16) unsigned char memory[];
  return memory;
}

// As launch() of launch.cuh, in clusters of grid.y blocks.
template <class... Parameters, class... Arguments>
cudaError_t launch_columns(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                           cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = 1;
  attributes[0].val.clusterDim.y = grid.y;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

}  // namespace pelton::backend::cuda
