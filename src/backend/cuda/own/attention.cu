// SPDX-License-Identifier: Apache-2.0
// Attention on tensor cores. A warp holds 16 queries; warps of a block share out queries, or at small sizes
// the keys (and merge at the end), so that a few heads fill the GPU as well as many.
#include "backend/cuda/own/attention.h"

#include "backend/cuda/own/attention_scores.cuh"
#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
#include "backend/cuda/own/mma.cuh"

namespace pelton::backend::cuda {
namespace {

// kDepth: depth and width of a head, rounded up to 16. Every key warp takes kKeys keys of a stage.
template <int kDepth_, int kQueryWarps_, int kKeyWarps_, int kKeys_>
struct Shape {
  static constexpr int kDepth = kDepth_, kQueryWarps = kQueryWarps_, kKeyWarps = kKeyWarps_, kKeys = kKeys_;
  static constexpr int kThreads = 32 * kQueryWarps * kKeyWarps, kQueries = 16 * kQueryWarps;
  static constexpr int kStageKeys = kKeys * kKeyWarps, kPitch = kDepth + 8;
  static constexpr int kStage = 2 * kStageKeys * kPitch;  // elements: keys, then values
  static constexpr int kMergeFloats = (kKeyWarps - 1) * kQueryWarps * (16 * (kDepth + 4) + 32);
  static constexpr int kShared = 2 * (kQueries * kPitch + 2 * kStage) > 4 * kMergeFloats
                                     ? 2 * (kQueries * kPitch + 2 * kStage)
                                     : 4 * kMergeFloats;
};

// Rows [first, first + kRows) of a [rows, depth] operand to shared memory, zeros outside.
template <class T, class S, int kRows>
__device__ __forceinline__ void copy_rows(T* to, const T* from, int64_t stride, int first, int rows,
                                          int depth) {
  constexpr int kChunks = S::kDepth / 8;
  for (int i = threadIdx.x; i < kRows * kChunks; i += S::kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const bool there = first + row < rows && chunk * 8 < depth;
    copy_16(to + row * S::kPitch + chunk * 8, there ? from + (first + row) * stride + chunk * 8 : from,
            there);
  }
}

// Blocks that a multiprocessor holds at least: as many as registers allow without spills.
template <class S, bool kPlain>
inline constexpr int kBlocksEach = S::kKeyWarps > 1 || S::kDepth > 64 ? 1
                                   : kPlain                           ? 4
                                                                      : 3;

template <class T, class S, bool kPlain>
__global__ void __launch_bounds__(S::kThreads, kBlocksEach<S, kPlain>) kernel(const Attention g) {
  extern __shared__ __align__(128) unsigned char shared[];
  T* const queries = reinterpret_cast<T*>(shared);
  T* const stages = queries + S::kQueries * S::kPitch;
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int query_warp = warp % S::kQueryWarps, key_warp = warp / S::kQueryWarps;
  const int head = blockIdx.y % g.heads, image = blockIdx.y / g.heads, group = head / (g.heads / g.groups);
  // The last queries see the most keys: they start first.
  const int block = g.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int first_query = block * S::kQueries;
  const T* const q = static_cast<const T*>(g.q) + image * g.q_strides[0] + head * g.q_strides[1];
  const T* const k = static_cast<const T*>(g.k) + image * g.k_strides[0] + group * g.k_strides[1];
  const T* const v = static_cast<const T*>(g.v) + image * g.v_strides[0] + group * g.v_strides[1];
  int limit = g.keys;  // keys that some query of the block sees
  if (g.causal) limit = min(limit, max(0, first_query + S::kQueries + g.keys - g.queries));
  const int steps = (limit + S::kStageKeys - 1) / S::kStageKeys;

  let_next_start();
  inputs_ready();
  copy_rows<T, S, S::kQueries>(queries, q, g.q_strides[2], first_query, g.queries, g.depth);
  auto copy_stage = [&](int step) {
    T* const to = stages + step % 2 * S::kStage;
    if (step < steps) {
      copy_rows<T, S, S::kStageKeys>(to, k, g.k_strides[2], step * S::kStageKeys, g.keys, g.depth);
      copy_rows<T, S, S::kStageKeys>(to + S::kStageKeys * S::kPitch, v, g.v_strides[2], step * S::kStageKeys,
                                     g.keys, g.width);
    }
    commit_copies();
  };
  copy_stage(0);

  uint32_t fq[S::kDepth / 16][4];
  float result[S::kDepth / 8][4] = {};
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  const int rows[2] = {first_query + query_warp * 16 + lane / 4,
                       first_query + query_warp * 16 + lane / 4 + 8};
  for (int step = 0; step < steps; ++step) {
    copy_stage(step + 1);
    wait_copies<1>();
    __syncthreads();
    if (step == 0) {
#pragma unroll
      for (int d = 0; d < S::kDepth / 16; ++d)
        load_matrices(fq[d], queries + (query_warp * 16 + lane % 16) * S::kPitch + d * 16 + lane / 16 * 8);
    }
    const T* const keys = stages + step % 2 * S::kStage + key_warp * S::kKeys * S::kPitch;
    const T* const values = keys + S::kStageKeys * S::kPitch;
    float scores[S::kKeys / 8][4] = {};
#pragma unroll
    for (int d = 0; d < S::kDepth / 16; ++d)
#pragma unroll
      for (int j = 0; j < S::kKeys / 16; ++j) {
        uint32_t fk[4];
        load_matrices(fk, keys + (j * 16 + lane / 16 * 8 + lane % 8) * S::kPitch + d * 16 + lane / 8 % 2 * 8);
        multiply_add<T>(scores[2 * j], fq[d], fk[0], fk[1]);
        multiply_add<T>(scores[2 * j + 1], fq[d], fk[2], fk[3]);
      }
    const int first_key = step * S::kStageKeys + key_warp * S::kKeys;
    float highest[2] = {-INFINITY, -INFINITY};
    // Most blocks of keys are seen whole, without a test for each.
    const bool whole = kPlain && first_key + S::kKeys <= g.keys && first_query + S::kQueries <= g.queries &&
                       (!g.causal || first_key + S::kKeys - 1 <= first_query + g.keys - g.queries);
    if (whole) {
#pragma unroll
      for (int j = 0; j < S::kKeys / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          scores[j][e] *= g.scale;
          highest[e / 2] = fmaxf(highest[e / 2], scores[j][e]);
        }
    } else {
#pragma unroll
      for (int j = 0; j < S::kKeys / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = first_key + j * 8 + lane % 4 * 2 + e % 2;
          scores[j][e] = finished_score<kPlain>(g, scores[j][e], image, head, rows[e / 2], key);
          highest[e / 2] = fmaxf(highest[e / 2], scores[j][e]);
        }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      highest[r] = fmaxf(highest[r], __shfl_xor_sync(0xFFFFFFFFu, highest[r], 1));
      highest[r] = fmaxf(highest[r], __shfl_xor_sync(0xFFFFFFFFu, highest[r], 2));
      const float new_top = fmaxf(top[r], highest[r]);
      const float shrink = new_top == -INFINITY ? 1.0f : __expf(top[r] - new_top);
      top[r] = new_top;
      sum[r] *= shrink;
#pragma unroll
      for (int d = 0; d < S::kDepth / 8; ++d) {
        result[d][2 * r] *= shrink;
        result[d][2 * r + 1] *= shrink;
      }
    }
#pragma unroll
    for (int j = 0; j < S::kKeys / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        scores[j][e] = top[e / 2] == -INFINITY ? 0.0f : __expf(scores[j][e] - top[e / 2]);
        sum[e / 2] += scores[j][e];
      }
#pragma unroll
    for (int j = 0; j < S::kKeys / 16; ++j) {
      const uint32_t fp[4] = {pack_pair<T>(scores[2 * j][0], scores[2 * j][1]),
                              pack_pair<T>(scores[2 * j][2], scores[2 * j][3]),
                              pack_pair<T>(scores[2 * j + 1][0], scores[2 * j + 1][1]),
                              pack_pair<T>(scores[2 * j + 1][2], scores[2 * j + 1][3])};
#pragma unroll
      for (int d = 0; d < S::kDepth / 16; ++d) {
        uint32_t fv[4];
        load_matrices_transposed(
            fv, values + (j * 16 + lane / 8 % 2 * 8 + lane % 8) * S::kPitch + d * 16 + lane / 16 * 8);
        multiply_add<T>(result[2 * d], fp, fv[0], fv[1]);
        multiply_add<T>(result[2 * d + 1], fp, fv[2], fv[3]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(0xFFFFFFFFu, sum[r], 1);
    sum[r] += __shfl_xor_sync(0xFFFFFFFFu, sum[r], 2);
  }
  if constexpr (S::kKeyWarps > 1) {
    // The first key warp takes what the others have, in order.
    constexpr int kRow = S::kDepth + 4;
    wait_copies<0>();
    __syncthreads();
    float* const merge = reinterpret_cast<float*>(shared);
    auto place = [&](int other) {
      return merge + ((other - 1) * S::kQueryWarps + query_warp) * (16 * kRow + 32);
    };
    if (key_warp > 0) {
      float* const to = place(key_warp);
#pragma unroll
      for (int d = 0; d < S::kDepth / 8; ++d)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          to[(lane / 4 + e / 2 * 8) * kRow + d * 8 + lane % 4 * 2 + e % 2] = result[d][e];
      if (lane % 4 == 0)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          to[16 * kRow + lane / 4 + r * 8] = top[r];
          to[16 * kRow + 16 + lane / 4 + r * 8] = sum[r];
        }
    }
    __syncthreads();
    if (key_warp > 0) return;
    for (int other = 1; other < S::kKeyWarps; ++other) {
      const float* const from = place(other);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float other_top = from[16 * kRow + lane / 4 + r * 8];
        const float new_top = fmaxf(top[r], other_top);
        if (new_top == -INFINITY) continue;
        const float mine = __expf(top[r] - new_top), theirs = __expf(other_top - new_top);
        top[r] = new_top;
        sum[r] = sum[r] * mine + from[16 * kRow + 16 + lane / 4 + r * 8] * theirs;
#pragma unroll
        for (int d = 0; d < S::kDepth / 8; ++d)
#pragma unroll
          for (int e = 2 * r; e < 2 * r + 2; ++e)
            result[d][e] =
                result[d][e] * mine + from[(lane / 4 + r * 8) * kRow + d * 8 + lane % 4 * 2 + e % 2] * theirs;
      }
    }
  }
  T* const y = static_cast<T*>(g.y) + image * g.y_strides[0] + head * g.y_strides[1];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (rows[r] >= g.queries) continue;
    const float inverse = top[r] == -INFINITY ? 0.0f : 1.0f / sum[r];
#pragma unroll
    for (int d = 0; d < S::kDepth / 8; ++d)
      if (d * 8 < g.width)
        *reinterpret_cast<uint32_t*>(y + rows[r] * g.y_strides[2] + d * 8 + lane % 4 * 2) =
            pack_pair<T>(result[d][2 * r] * inverse, result[d][2 * r + 1] * inverse);
    if (g.log_sums && lane % 4 == 0)
      g.log_sums[(static_cast<int64_t>(image) * g.heads + head) * g.queries + rows[r]] =
          top[r] == -INFINITY ? top[r] : top[r] + logf(sum[r]);
  }
}

template <class T, class S, bool kPlain>
cudaError_t start_kind(const Attention& g, cudaStream_t stream) {
  auto* k = &kernel<T, S, kPlain>;
  const cudaError_t allowed =
      cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kShared);
  if (allowed != cudaSuccess) return allowed;
  return launch(k, dim3((g.queries + S::kQueries - 1) / S::kQueries, g.n * g.heads), dim3(S::kThreads),
                S::kShared, stream, g);
}
template <class T, class S>
cudaError_t start(const Attention& g, cudaStream_t stream) {
  if (g.mask_kind == Attention::no_mask && g.softcap == 0) return start_kind<T, S, true>(g, stream);
  return start_kind<T, S, false>(g, stream);
}
template <class T, int kDepth>
cudaError_t start_depth(const Attention& g, cudaStream_t stream) {
  // Blocks of 64 queries, where there are enough of them.
  if (static_cast<int64_t>(g.n) * g.heads * ((g.queries + 63) / 64) >= 200)
    return start<T, Shape<kDepth, 4, 1, 64>>(g, stream);
  return start<T, Shape<kDepth, 1, 4, 32>>(g, stream);
}
template <class T>
cudaError_t start_any(const Attention& g, cudaStream_t stream) {
  const int depth = g.depth > g.width ? g.depth : g.width;
  if (depth <= 32) return start_depth<T, 32>(g, stream);
  if (depth <= 64) return start_depth<T, 64>(g, stream);
  return start_depth<T, 128>(g, stream);
}

bool on_tensor_cores(const Attention& g) {
  if (g.type == Elem::f32 || g.depth > 128 || g.width > 128 || g.depth % 8 != 0 || g.width % 8 != 0)
    return false;
  for (int i = 0; i < 3; ++i)
    if (g.q_strides[i] % 8 != 0 || g.k_strides[i] % 8 != 0 || g.v_strides[i] % 8 != 0 ||
        g.y_strides[i] % 2 != 0)
      return false;
  auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  return aligned(g.q) && aligned(g.k) && aligned(g.v) && aligned(g.y);
}

}  // namespace

bool attention_f32_takes(const Attention& g);                           // attention_f32.cu
cudaError_t attention_f32(const Attention& g, cudaStream_t stream);     // attention_f32.cu
cudaError_t attention_scalar(const Attention& g, cudaStream_t stream);  // attention_scalar.cu

cudaError_t attention(const Attention& g, cudaStream_t stream) {
  if (attention_f32_takes(g)) return attention_f32(g, stream);
  if (!on_tensor_cores(g)) return attention_scalar(g, stream);
  return g.type == Elem::f16 ? start_any<__half>(g, stream) : start_any<__nv_bfloat16>(g, stream);
}

}  // namespace pelton::backend::cuda
