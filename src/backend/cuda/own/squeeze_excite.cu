// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/squeeze_excite.h"

#include <cooperative_groups.h>

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/mma.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256, kCluster = 8;

// What a block of a cluster takes and keeps in shared memory. By channels: some channels of every place, and
// the blocks add up their parts of the first product. By places: every channel of some places; the blocks add
// up their sums, and each computes both products.
struct Plan {
  bool by_places;
  int channels;  // at most, of a block
  bool weights_shared;
  int floats, bytes;
  __host__ __device__ Plan(const SqueezeExcite& g, int vector, int element_bytes) {
    by_places =
        !g.part_sums && static_cast<int64_t>(g.c) * g.hidden <= 8192 && g.c <= 1024 && g.places >= 512;
    const int groups = g.c / vector;
    channels = by_places ? g.c : (groups + kCluster - 1) / kCluster * vector;
    const int exchanged = by_places ? g.c : g.hidden;
    // The shares of the second product lie where the sums were.
    floats = (kThreads * vector > channels + 32 ? kThreads * vector : channels + 32) +
             2 * ((channels + 3) / 4 * 4) + (g.hidden + 3) / 4 * 4 + kCluster * ((exchanged + 3) / 4 * 4);
    const int weights = 2 * (g.hidden * (channels + 8)) * element_bytes;
    weights_shared = weights <= 96 * 1024;
    bytes = 4 * floats + (weights_shared ? weights : 0);
  }
};

// kSummed: from the sums of parts of the places, and to the factors alone.
template <class T, int V, bool kSummed>
__global__ void __launch_bounds__(kThreads) kernel(const SqueezeExcite g) {
  namespace cg = cooperative_groups;
  cg::cluster_group cluster = cg::this_cluster();
  const int rank = static_cast<int>(cluster.block_rank());
  const int image = blockIdx.x / kCluster, thread = threadIdx.x;
  const Plan plan(g, V, sizeof(T));
  const int groups = g.c / V;
  const int first_group = plan.by_places ? 0 : groups * rank / kCluster,
            own_groups = plan.by_places ? groups : groups * (rank + 1) / kCluster - first_group;
  const int first = first_group * V, own = own_groups * V;
  const int first_place =
                plan.by_places ? static_cast<int>(static_cast<int64_t>(g.places) * rank / kCluster) : 0,
            last_place = plan.by_places
                             ? static_cast<int>(static_cast<int64_t>(g.places) * (rank + 1) / kCluster)
                             : g.places;
  const int exchanged = plan.by_places ? g.c : g.hidden;

  extern __shared__ __align__(16) float shared[];
  float* const sums = shared;                                // [rows, own]
  float* const means = sums + kThreads * V;                  // [own]
  float* const gates = means + (plan.channels + 3) / 4 * 4;  // [own]
  float* const inner = gates + (plan.channels + 3) / 4 * 4;  // [hidden]
  float* const parts = inner + (g.hidden + 3) / 4 * 4;       // [cluster, exchanged], written by every block
  T* const w1_shared = reinterpret_cast<T*>(shared + plan.floats);  // [hidden, channels + 8]
  T* const w2_shared = w1_shared + g.hidden * (plan.channels + 8);
  auto arrival = cluster.barrier_arrive();
  const T* const w1 = static_cast<const T*>(g.w1) + first;
  const T* const w2 = static_cast<const T*>(g.w2) + first;
  const int pitch = plan.channels + 8;
  if (!g.fixed_weights) asm volatile("griddepcontrol.wait;" ::: "memory");
  if (plan.weights_shared) {
    // The weights are on their way before the kernel in front is done.
    int u = own_groups > 0 ? thread / own_groups : 0, c = own_groups > 0 ? thread - u * own_groups : 0;
    const int down = own_groups > 0 ? kThreads / own_groups : 0, right = kThreads - down * own_groups;
    while (own_groups > 0 && u < g.hidden) {
      copy_16(w1_shared + u * pitch + c * V, w1 + static_cast<int64_t>(u) * g.c + c * V, true);
      copy_16(w2_shared + u * pitch + c * V, w2 + static_cast<int64_t>(u) * g.c + c * V, true);
      u += down;
      c += right;
      if (c >= own_groups) {
        c -= own_groups;
        ++u;
      }
    }
    commit_copies();
  }
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");

  // Of the first unit and channel of a thread: they would be waited for later.
  const T *const b1 = static_cast<const T*>(g.b1), *const b2 = static_cast<const T*>(g.b2);
  const T none = from_float<T>(0.0f);
  const T early_b1 = b1 && thread < g.hidden ? b1[thread] : none,
          early_b2 = b2 && thread < own ? b2[first + thread] : none;
  const T* const x = static_cast<const T*>(g.x) + static_cast<int64_t>(image) * g.places * g.c + first;
  const int rows = own_groups > 0 ? kThreads / own_groups : 0;  // places at a time
  const int row = own_groups > 0 ? thread / own_groups : 0, column = own_groups > 0 ? thread % own_groups : 0;
  if (kSummed && row < rows) {
    const float* const from = g.part_sums + static_cast<int64_t>(image) * g.parts * g.c + first + column * V;
    float sum[V] = {};
#pragma unroll 4
    for (int p = row; p < g.parts; p += rows) {
      float part[V];
      load_v<V>(from + static_cast<int64_t>(p) * g.c, part);
#pragma unroll
      for (int e = 0; e < V; ++e) sum[e] += part[e];
    }
#pragma unroll
    for (int e = 0; e < V; ++e) sums[row * own + column * V + e] = sum[e];
  }
  if (!kSummed && row < rows) {
    float sum[V] = {};
    // Eight places at a time, those behind the end as zeros: one wait for all of them.
    for (int p = first_place + row; p < last_place; p += 8 * rows) {
      Pack<T, V> values[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
#pragma unroll
        for (int e = 0; e < V; ++e) values[i].v[e] = from_float<T>(0.0f);
        if (p + i * rows < last_place)
          values[i] =
              *reinterpret_cast<const Pack<T, V>*>(x + static_cast<int64_t>(p + i * rows) * g.c + column * V);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int e = 0; e < V; ++e) sum[e] += to_float(values[i].v[e]);
    }
#pragma unroll
    for (int e = 0; e < V; ++e) sums[row * own + column * V + e] = sum[e];
  }
  __syncthreads();
  // A few lanes add up the rows of a channel, as many as keep all warps busy.
  const int lanes = own >= 128 ? 4 : own >= 32 ? 8 : 32;
  for (int c = thread / lanes; c < (own + 31) / 32 * 32; c += kThreads / lanes) {
    float s = 0;
    if (c < own)
      for (int r = thread % lanes; r < rows; r += lanes) s += sums[r * own + c];
    for (int i = lanes / 2; i > 0; i /= 2) s += __shfl_xor_sync(0xFFFFFFFFu, s, i);
    if (c < own && thread % lanes == 0) means[c] = s;
  }
  __syncthreads();
  cluster.barrier_wait(std::move(arrival));  // every block of the cluster runs
  if (plan.by_places) {
    for (int i = thread; i < own * kCluster; i += kThreads) {
      const int to = i / own, c = i - to * own;
      cluster.map_shared_rank(parts, to)[rank * exchanged + c] = means[c];
    }
    cluster.sync();
    for (int c = thread; c < own; c += kThreads) {
      float s = 0;
#pragma unroll
      for (int b = 0; b < kCluster; ++b) s += parts[b * exchanged + c];
      means[c] = s / static_cast<float>(g.places);
    }
    __syncthreads();
  }
  const float scale = plan.by_places ? 1.0f : 1.0f / static_cast<float>(g.places);
  if (plan.weights_shared) wait_copies<0>();
  __syncthreads();
  // Four lanes an inner unit, V channels at a time.
  for (int first_u = 0; first_u < g.hidden; first_u += kThreads / 4) {
    const int u = first_u + thread / 4;
    float s = 0;
    if (u < g.hidden)
      for (int c = thread % 4 * V; c < own; c += 4 * V) {
        float weight[V];
        load_v<V>(plan.weights_shared ? w1_shared + u * pitch + c : w1 + static_cast<int64_t>(u) * g.c + c,
                  weight);
#pragma unroll
        for (int e = 0; e < V; ++e) s = fmaf(weight[e], means[c + e], s);
      }
    s += __shfl_xor_sync(0xFFFFFFFFu, s, 1);
    s += __shfl_xor_sync(0xFFFFFFFFu, s, 2);
    if (u >= g.hidden) continue;
    s *= scale;
    if (plan.by_places) {
      if (thread % 4 == 0) inner[u] = s;
    } else {
      cluster.map_shared_rank(parts, thread % 4)[rank * exchanged + u] = s;
      cluster.map_shared_rank(parts, thread % 4 + 4)[rank * exchanged + u] = s;
    }
  }
  if (plan.by_places)
    __syncthreads();
  else
    cluster.sync();
  for (int u = thread; u < g.hidden; u += kThreads) {
    float s[1] = {to_float(u == thread || !b1 ? early_b1 : b1[u])};
    if (plan.by_places) {
      s[0] += inner[u];
    } else {
#pragma unroll
      for (int b = 0; b < kCluster; ++b) s[0] += parts[b * exchanged + u];
    }
    apply_step<1>(g.act1, s, 0, 0, 0, 0);
    inner[u] = s[0];
  }
  __syncthreads();
  // A thread a channel; where there are fewer channels than threads, several share one.
  const int own_round = (own + 31) / 32 * 32,
            shares = own_round > 0 && own_round < kThreads ? kThreads / own_round : 1;
  const int share = own_round > 0 ? thread / own_round : 0;
  for (int c = shares > 1 ? thread - share * own_round : thread; c < own && share < shares; c += kThreads) {
    float s = 0;
#pragma unroll 4
    for (int u = share; u < g.hidden; u += shares)
      s = fmaf(
          to_float(plan.weights_shared ? w2_shared[u * pitch + c] : w2[static_cast<int64_t>(u) * g.c + c]),
          inner[u], s);
    sums[share * own_round + c] = s;
    if (shares > 1) break;
  }
  __syncthreads();
  for (int c = thread; c < own; c += kThreads) {
    float total[1] = {to_float(c == thread || !b2 ? early_b2 : b2[first + c])};
    for (int i = 0; i < shares; ++i) total[0] += sums[i * own_round + c];
    apply_step<1>(g.act2, total, 0, 0, 0, 0);
    if (kSummed)
      static_cast<T*>(g.y)[static_cast<int64_t>(image) * g.c + first + c] = from_float<T>(total[0]);
    else
      gates[c] = total[0];
  }
  if (kSummed) return;
  __syncthreads();
  if (row >= rows) return;
  T* const y = static_cast<T*>(g.y) + static_cast<int64_t>(image) * g.places * g.c + first;
  float gate[V];
#pragma unroll
  for (int e = 0; e < V; ++e) gate[e] = gates[column * V + e];
  for (int p = first_place + row; p < last_place; p += 4 * rows) {
    Pack<T, V> values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (p + i * rows < last_place)
        values[i] =
            *reinterpret_cast<const Pack<T, V>*>(x + static_cast<int64_t>(p + i * rows) * g.c + column * V);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (p + i * rows >= last_place) break;
#pragma unroll
      for (int e = 0; e < V; ++e) values[i].v[e] = from_float<T>(to_float(values[i].v[e]) * gate[e]);
      *reinterpret_cast<Pack<T, V>*>(y + static_cast<int64_t>(p + i * rows) * g.c + column * V) = values[i];
    }
  }
}

template <class T, int V>
cudaError_t start(const SqueezeExcite& g, cudaStream_t stream) {
  const Plan plan(g, V, sizeof(T));
  auto* k = g.part_sums ? &kernel<T, V, true> : &kernel<T, V, false>;
  const cudaError_t allowed =
      cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024);
  if (allowed != cudaSuccess) return allowed;
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = kCluster;
  attributes[0].val.clusterDim.y = attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(g.n * kCluster));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(plan.bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, k, g);
}

}  // namespace

cudaError_t squeeze_excite(const SqueezeExcite& g, cudaStream_t stream) {
  if (g.type == Elem::f16) return start<__half, 8>(g, stream);
  if (g.type == Elem::bf16) return start<__nv_bfloat16, 8>(g, stream);
  return start<float, 4>(g, stream);
}

}  // namespace pelton::backend::cuda
