// SPDX-License-Identifier: Apache-2.0
// Attention in f32 arithmetic, for heads whose rows can be read 16 bytes at a time. A block has 16 queries, a
// warp four of them: of a stage of keys each lane scores two, then owns pairs of elements of the results.
#include "backend/cuda/own/attention_scores.cuh"
#include "backend/cuda/own/launch.cuh"
#include "backend/cuda/own/mma.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps, kEach = 4, kQueries = kWarps * kEach, kKeys = 64;

// In shared memory, in floats: queries, two stages of keys and values, the weights of each warp's queries.
struct Plan {
  int key_pitch, stage, total;
  __host__ __device__ explicit Plan(const Attention& g) {
    key_pitch = g.depth / 4 % 2 == 0 ? g.depth + 4 : g.depth;  // an odd number of 16-byte units
    stage = kKeys * (key_pitch + g.width);
    total = kQueries * g.depth + 2 * stage + kQueries * kKeys;
  }
};

// Rows [first, first + count) of a [rows, depth] operand, zeros behind the last.
__device__ __forceinline__ void copy_rows(float* to, int pitch, const float* from, int64_t stride, int first,
                                          int count, int rows, int depth) {
  const int units = depth / 4;
  int row = static_cast<int>(threadIdx.x) / units, unit = static_cast<int>(threadIdx.x) - row * units;
  const int down = kThreads / units, right = kThreads - down * units;
  while (row < count) {
    const bool there = first + row < rows;
    copy_16(to + row * pitch + unit * 4, there ? from + (first + row) * stride + unit * 4 : from, there);
    row += down;
    unit += right;
    if (unit >= units) {
      unit -= units;
      ++row;
    }
  }
}

template <bool kPlain, int kPairs>  // pairs of results a lane owns of each query
__global__ void __launch_bounds__(kThreads) kernel(const Attention g) {
  extern __shared__ __align__(16) float shared[];
  const Plan plan(g);
  float* const queries = shared;
  float* const stages = queries + kQueries * g.depth;
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  float* const weights = stages + 2 * plan.stage + warp * kEach * kKeys;
  const int head = blockIdx.y % g.heads, image = blockIdx.y / g.heads, group = head / (g.heads / g.groups);
  const int block = g.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;  // those of most keys first
  const int block_query = block * kQueries, first_query = block_query + warp * kEach;
  const float* const q = static_cast<const float*>(g.q) + image * g.q_strides[0] + head * g.q_strides[1];
  const float* const k = static_cast<const float*>(g.k) + image * g.k_strides[0] + group * g.k_strides[1];
  const float* const v = static_cast<const float*>(g.v) + image * g.v_strides[0] + group * g.v_strides[1];
  int limit = g.keys;  // keys that some query of the block sees
  if (g.causal) limit = min(limit, max(0, block_query + kQueries + g.keys - g.queries));
  const int steps = (limit + kKeys - 1) / kKeys;
  let_next_start();
  inputs_ready();
  copy_rows(queries, g.depth, q, g.q_strides[2], block_query, kQueries, g.queries, g.depth);
  auto copy_stage = [&](int step) {
    if (step < steps) {
      float* const to = stages + step % 2 * plan.stage;
      copy_rows(to, plan.key_pitch, k, g.k_strides[2], step * kKeys, kKeys, g.keys, g.depth);
      copy_rows(to + kKeys * plan.key_pitch, g.width, v, g.v_strides[2], step * kKeys, kKeys, g.keys,
                g.width);
    }
    commit_copies();
  };
  copy_stage(0);
  float top[kEach], sum[kEach] = {};
  float2 result[kEach][kPairs] = {};
#pragma unroll
  for (int r = 0; r < kEach; ++r) top[r] = -INFINITY;
  for (int step = 0; step < steps; ++step) {
    copy_stage(step + 1);
    wait_copies<1>();
    __syncthreads();
    const float* const keys = stages + step % 2 * plan.stage;
    const float* const values = keys + kKeys * plan.key_pitch;
    const int first = step * kKeys;
    float score[kEach][2] = {};
#pragma unroll 4
    for (int d = 0; d < g.depth; d += 4) {
      const float4 near = *reinterpret_cast<const float4*>(keys + lane * plan.key_pitch + d),
                   far = *reinterpret_cast<const float4*>(keys + (lane + 32) * plan.key_pitch + d);
#pragma unroll
      for (int r = 0; r < kEach; ++r) {
        const float4 x = *reinterpret_cast<const float4*>(queries + (warp * kEach + r) * g.depth + d);
        score[r][0] = fmaf(x.w, near.w, fmaf(x.z, near.z, fmaf(x.y, near.y, fmaf(x.x, near.x, score[r][0]))));
        score[r][1] = fmaf(x.w, far.w, fmaf(x.z, far.z, fmaf(x.y, far.y, fmaf(x.x, far.x, score[r][1]))));
      }
    }
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        score[r][half] =
            finished_score<kPlain>(g, score[r][half], image, head, first_query + r, first + lane + 32 * half);
      float highest = fmaxf(score[r][0], score[r][1]);
#pragma unroll
      for (int i = 16; i > 0; i /= 2) highest = fmaxf(highest, __shfl_xor_sync(0xFFFFFFFFu, highest, i));
      const float new_top = fmaxf(top[r], highest);
      const float shrink = new_top == -INFINITY ? 1.0f : expf(top[r] - new_top);
      top[r] = new_top;
      sum[r] *= shrink;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float weight = new_top == -INFINITY ? 0.0f : expf(score[r][half] - new_top);
        sum[r] += weight;
        weights[r * kKeys + lane + 32 * half] = weight;
      }
#pragma unroll
      for (int e = 0; e < kPairs; ++e) {
        result[r][e].x *= shrink;
        result[r][e].y *= shrink;
      }
    }
    __syncwarp();
    const int count = (min(kKeys, g.keys - first) + 3) / 4 * 4;  // zeros behind the last
    for (int j = 0; j < count; j += 4) {
      float4 weight[kEach];
#pragma unroll
      for (int r = 0; r < kEach; ++r) weight[r] = *reinterpret_cast<const float4*>(weights + r * kKeys + j);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int e = 0; e < kPairs; ++e) {
          const int at = e * 64 + lane * 2;
          if (at >= g.width) break;
          const float2 value = *reinterpret_cast<const float2*>(values + (j + i) * g.width + at);
#pragma unroll
          for (int r = 0; r < kEach; ++r) {
            const float w = i == 0 ? weight[r].x : i == 1 ? weight[r].y : i == 2 ? weight[r].z : weight[r].w;
            result[r][e].x = fmaf(w, value.x, result[r][e].x);
            result[r][e].y = fmaf(w, value.y, result[r][e].y);
          }
        }
    }
    __syncthreads();
  }
  wait_copies<0>();
  float* const y = static_cast<float*>(g.y) + image * g.y_strides[0] + head * g.y_strides[1];
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    float total = sum[r];
#pragma unroll
    for (int i = 16; i > 0; i /= 2) total += __shfl_xor_sync(0xFFFFFFFFu, total, i);
    const int row = first_query + r;
    if (row >= g.queries) continue;
    const float inverse = top[r] == -INFINITY ? 0.0f : 1.0f / total;
#pragma unroll
    for (int e = 0; e < kPairs; ++e)
      if (e * 64 + lane * 2 < g.width)
        *reinterpret_cast<float2*>(y + row * g.y_strides[2] + e * 64 + lane * 2) =
            make_float2(result[r][e].x * inverse, result[r][e].y * inverse);
    if (g.log_sums && lane == 0)
      g.log_sums[(static_cast<int64_t>(image) * g.heads + head) * g.queries + row] =
          top[r] == -INFINITY ? top[r] : top[r] + logf(total);
  }
}

template <bool kPlain, int kPairs>
cudaError_t start(const Attention& g, cudaStream_t stream) {
  auto* k = &kernel<kPlain, kPairs>;
  const cudaError_t allowed =
      cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024);
  if (allowed != cudaSuccess) return allowed;
  return launch(k, dim3((g.queries + kQueries - 1) / kQueries, g.n * g.heads), dim3(kThreads),
                sizeof(float) * static_cast<size_t>(Plan(g).total), stream, g);
}
template <bool kPlain>
cudaError_t start_width(const Attention& g, cudaStream_t stream) {
  return g.width <= 64 ? start<kPlain, 1>(g, stream) : start<kPlain, 2>(g, stream);
}

}  // namespace

bool attention_f32_takes(const Attention& g) {
  if (g.type != Elem::f32 || g.depth > 128 || g.width > 128 || g.depth % 4 != 0 || g.width % 4 != 0)
    return false;
  for (int i = 0; i < 3; ++i)
    if (g.q_strides[i] % 4 != 0 || g.k_strides[i] % 4 != 0 || g.v_strides[i] % 4 != 0 ||
        g.y_strides[i] % 2 != 0)
      return false;
  auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  return aligned(g.q) && aligned(g.k) && aligned(g.v) && aligned(g.y);
}
cudaError_t attention_f32(const Attention& g, cudaStream_t stream) {
  if (g.mask_kind == Attention::no_mask && g.softcap == 0) return start_width<true>(g, stream);
  return start_width<false>(g, stream);
}

}  // namespace pelton::backend::cuda
