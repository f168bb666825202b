// SPDX-License-Identifier: Apache-2.0
// Attention for head sizes that the other kernels do not take. A warp holds a few
// queries; each lane scores one of 32 keys, then owns every 32nd element of the results.
#include "backend/cuda/own/attention_scores.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kKeys = 32;

template <class T, int kPerWarp, int kWidth>  // kWidth: elements of a result a lane owns
__global__ void __launch_bounds__(kThreads) kernel(const Attention g) {
  extern __shared__ float shared[];
  const int depth_pitch = g.depth + 1;
  float* const queries = shared;                              // [kWarps * kPerWarp, depth]
  float* const keys = queries + kWarps * kPerWarp * g.depth;  // [kKeys, depth + 1]
  float* const values = keys + kKeys * depth_pitch;           // [kKeys, width]
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int head = blockIdx.y % g.heads, image = blockIdx.y / g.heads, group = head / (g.heads / g.groups);
  const int block_query = blockIdx.x * kWarps * kPerWarp, first_query = block_query + warp * kPerWarp;
  const T* const q = static_cast<const T*>(g.q) + image * g.q_strides[0] + head * g.q_strides[1];
  const T* const k = static_cast<const T*>(g.k) + image * g.k_strides[0] + group * g.k_strides[1];
  const T* const v = static_cast<const T*>(g.v) + image * g.v_strides[0] + group * g.v_strides[1];
  let_next_start();
  inputs_ready();
  for (int i = thread; i < kWarps * kPerWarp * g.depth; i += kThreads) {
    const int row = block_query + i / g.depth;
    queries[i] = row < g.queries ? to_float(q[row * g.q_strides[2] + i % g.depth]) : 0.0f;
  }
  float top[kPerWarp], sum[kPerWarp], result[kPerWarp][kWidth] = {};
#pragma unroll
  for (int r = 0; r < kPerWarp; ++r) {
    top[r] = -INFINITY;
    sum[r] = 0;
  }
  int limit = g.keys;
  if (g.causal) limit = min(limit, max(0, block_query + kWarps * kPerWarp + g.keys - g.queries));
  for (int first = 0; first < limit; first += kKeys) {
    __syncthreads();
    for (int i = thread; i < kKeys * g.depth; i += kThreads) {
      const int row = i / g.depth, d = i % g.depth;
      keys[row * depth_pitch + d] =
          first + row < g.keys ? to_float(k[(first + row) * g.k_strides[2] + d]) : 0.0f;
    }
    for (int i = thread; i < kKeys * g.width; i += kThreads) {
      const int row = i / g.width, d = i % g.width;
      values[i] = first + row < g.keys ? to_float(v[(first + row) * g.v_strides[2] + d]) : 0.0f;
    }
    __syncthreads();
    float score[kPerWarp] = {};
    for (int d = 0; d < g.depth; ++d) {
      const float key = keys[lane * depth_pitch + d];
#pragma unroll
      for (int r = 0; r < kPerWarp; ++r)
        score[r] = fmaf(queries[(warp * kPerWarp + r) * g.depth + d], key, score[r]);
    }
#pragma unroll
    for (int r = 0; r < kPerWarp; ++r) {
      score[r] = finished_score<false>(g, score[r], image, head, first_query + r, first + lane);
      float highest = score[r];
#pragma unroll
      for (int i = 16; i > 0; i /= 2) highest = fmaxf(highest, __shfl_xor_sync(0xFFFFFFFFu, highest, i));
      const float new_top = fmaxf(top[r], highest);
      const float shrink = new_top == -INFINITY ? 1.0f : expf(top[r] - new_top);
      score[r] = new_top == -INFINITY ? 0.0f : expf(score[r] - new_top);
      top[r] = new_top;
      sum[r] = sum[r] * shrink + score[r];
#pragma unroll
      for (int e = 0; e < kWidth; ++e) result[r][e] *= shrink;
    }
    const int count = min(kKeys, g.keys - first);
    for (int j = 0; j < count; ++j) {
      float weight[kPerWarp];
#pragma unroll
      for (int r = 0; r < kPerWarp; ++r) weight[r] = __shfl_sync(0xFFFFFFFFu, score[r], j);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        if (e * 32 + lane >= g.width) break;
        const float value = values[j * g.width + e * 32 + lane];
#pragma unroll
        for (int r = 0; r < kPerWarp; ++r) result[r][e] = fmaf(weight[r], value, result[r][e]);
      }
    }
  }
  T* const y = static_cast<T*>(g.y) + image * g.y_strides[0] + head * g.y_strides[1];
#pragma unroll
  for (int r = 0; r < kPerWarp; ++r) {
    float total = sum[r];
#pragma unroll
    for (int i = 16; i > 0; i /= 2) total += __shfl_xor_sync(0xFFFFFFFFu, total, i);
    const int row = first_query + r;
    if (row >= g.queries) continue;
    const float inverse = top[r] == -INFINITY ? 0.0f : 1.0f / total;
#pragma unroll
    for (int e = 0; e < kWidth; ++e)
      if (e * 32 + lane < g.width)
        y[row * g.y_strides[2] + e * 32 + lane] = from_float<T>(result[r][e] * inverse);
    if (g.log_sums && lane == 0)
      g.log_sums[(static_cast<int64_t>(image) * g.heads + head) * g.queries + row] =
          top[r] == -INFINITY ? top[r] : top[r] + logf(total);
  }
}

template <class T, int kPerWarp, int kWidth>
cudaError_t start(const Attention& g, cudaStream_t stream) {
  auto* k = &kernel<T, kPerWarp, kWidth>;
  const cudaError_t allowed =
      cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 160 * 1024);
  if (allowed != cudaSuccess) return allowed;
  const size_t shared = sizeof(float) * (static_cast<size_t>(kWarps) * kPerWarp * g.depth +
                                         kKeys * (g.depth + 1) + static_cast<size_t>(kKeys) * g.width);
  constexpr int kQueries = kWarps * kPerWarp;
  return launch(k, dim3((g.queries + kQueries - 1) / kQueries, g.n * g.heads), dim3(kThreads), shared, stream,
                g);
}
template <class T>
cudaError_t start_any(const Attention& g, cudaStream_t stream) {
  if (g.width > 128) return start<T, 1, kAttentionMaxHead / 32>(g, stream);
  return g.queries >= 32 ? start<T, 4, 4>(g, stream) : start<T, 1, 4>(g, stream);
}

}  // namespace

cudaError_t attention_scalar(const Attention& g, cudaStream_t stream) {
  if (g.type == Elem::f16) return start_any<__half>(g, stream);
  if (g.type == Elem::bf16) return start_any<__nv_bfloat16>(g, stream);
  return start_any<float>(g, stream);
}

}  // namespace pelton::backend::cuda
