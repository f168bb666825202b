// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/squeeze_excite.h"

#include <cooperative_groups.h>

#include "backend/cuda/own/device.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32, kMaxCluster = 8;

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, i);
  return x;
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads, 2) kernel(const SqueezeExcite g) {
  namespace cg = cooperative_groups;
  cg::cluster_group cluster = cg::this_cluster();
  const int blocks = static_cast<int>(cluster.num_blocks()), rank = static_cast<int>(cluster.block_rank());
  const int image = blockIdx.x / blocks, thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  // This block's channels, in groups of V.
  const int groups = g.c / V, first_group = groups * rank / blocks,
            own_groups = groups * (rank + 1) / blocks - first_group;
  const int first = first_group * V, own = own_groups * V;

  extern __shared__ float shared[];
  float* const sums = shared;                                   // [kThreads * V], then the gates [own]
  float* const means = sums + kThreads * V;                     // [own]
  float* const inner = means + (g.c / blocks + V + 3) / 4 * 4;  // [hidden]
  float* const parts = inner + g.hidden;  // [blocks, hidden], written by the whole cluster
  auto arrival = cluster.barrier_arrive();
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");

  const T* const x = static_cast<const T*>(g.x) + static_cast<int64_t>(image) * g.places * g.c + first;
  const int rows = own_groups > 0 ? kThreads / own_groups : 0;  // places at a time
  const int row = own_groups > 0 ? thread / own_groups : 0, column = own_groups > 0 ? thread % own_groups : 0;
  float sum[V] = {};
  if (row < rows) {
#pragma unroll 4
    for (int p = row; p < g.places; p += rows) {
      float value[V];
      load_v<V>(x + static_cast<int64_t>(p) * g.c + column * V, value);
#pragma unroll
      for (int e = 0; e < V; ++e) sum[e] += value[e];
    }
#pragma unroll
    for (int e = 0; e < V; ++e) sums[row * own + column * V + e] = sum[e];
  }
  __syncthreads();
  if (own > 0) {
    // A warp adds up the rows of a channel.
    for (int c = warp; c < own; c += kWarps) {
      float s = 0;
      for (int r = lane; r < rows; r += 32) s += sums[r * own + c];
      s = warp_sum(s);
      if (lane == 0) means[c] = s / static_cast<float>(g.places);
    }
  }
  __syncthreads();
  cluster.barrier_wait(std::move(arrival));  // every block of the cluster runs
  const T* const w1 = static_cast<const T*>(g.w1) + first;
  for (int u = warp; u < g.hidden; u += kWarps) {
    float s = 0;
    for (int c = lane; c < own; c += 32)
      s = fmaf(to_float(w1[static_cast<int64_t>(u) * g.c + c]), means[c], s);
    s = warp_sum(s);
    if (lane < blocks) cluster.map_shared_rank(parts, lane)[rank * g.hidden + u] = s;
  }
  cluster.sync();
  for (int u = thread; u < g.hidden; u += kThreads) {
    float s[1] = {g.b1 ? to_float(static_cast<const T*>(g.b1)[u]) : 0.0f};
    for (int b = 0; b < blocks; ++b) s[0] += parts[b * g.hidden + u];
    apply_step<1>(g.act1, s, 0, 0, 0, 0);
    inner[u] = s[0];
  }
  __syncthreads();
  float* const gates = sums;
  const T* const w2 = static_cast<const T*>(g.w2) + static_cast<int64_t>(first) * g.hidden;
  for (int c = warp; c < own; c += kWarps) {
    float s = 0;
    for (int u = lane; u < g.hidden; u += 32)
      s = fmaf(to_float(w2[static_cast<int64_t>(c) * g.hidden + u]), inner[u], s);
    float total[1] = {warp_sum(s) + (g.b2 ? to_float(static_cast<const T*>(g.b2)[first + c]) : 0.0f)};
    apply_step<1>(g.act2, total, 0, 0, 0, 0);
    if (lane == 0) gates[c] = total[0];
  }
  __syncthreads();
  if (row >= rows) return;
  T* const y = static_cast<T*>(g.y) + static_cast<int64_t>(image) * g.places * g.c + first;
  float gate[V];
#pragma unroll
  for (int e = 0; e < V; ++e) gate[e] = gates[column * V + e];
#pragma unroll 4
  for (int p = row; p < g.places; p += rows) {
    float value[V];
    load_v<V>(x + static_cast<int64_t>(p) * g.c + column * V, value);
#pragma unroll
    for (int e = 0; e < V; ++e) value[e] *= gate[e];
    store_v<V>(y + static_cast<int64_t>(p) * g.c + column * V, value);
  }
}

template <class T, int V>
cudaError_t start(const SqueezeExcite& g, int multiprocessors, cudaStream_t stream) {
  // Enough blocks to fill the GPU, of two groups of channels or more, each thread with some places to read,
  // and no more groups a block than it has threads.
  int blocks = 1;
  const int groups = g.c / V;
  while (blocks < kMaxCluster && (g.n * blocks < 2 * multiprocessors || groups > blocks * kThreads) &&
         groups >= blocks * 4)
    blocks *= 2;
  const size_t shared = sizeof(float) * (static_cast<size_t>(kThreads) * V + (g.c / blocks + V + 3) / 4 * 4 +
                                         static_cast<size_t>(g.hidden) * (blocks + 1));
  auto* k = &kernel<T, V>;
  const cudaError_t allowed =
      cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 160 * 1024);
  if (allowed != cudaSuccess) return allowed;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = static_cast<unsigned>(blocks);
  attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(g.n * blocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, k, g);
}

}  // namespace

cudaError_t squeeze_excite(const SqueezeExcite& g, int multiprocessors, cudaStream_t stream) {
  if (g.type == Elem::f16) return start<__half, 8>(g, multiprocessors, stream);
  if (g.type == Elem::bf16) return start<__nv_bfloat16, 8>(g, multiprocessors, stream);
  return start<float, 4>(g, multiprocessors, stream);
}

}  // namespace pelton::backend::cuda
