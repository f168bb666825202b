// SPDX-License-Identifier: Apache-2.0
// Two kernels, so that no sum meets another in memory: one holds keys and walks over queries (dk, dv), one
// holds queries and walks over keys (dq). A warp holds 16 rows.
#include "backend/cuda/own/attention_backward.h"

#include "backend/cuda/own/attention_scores.cuh"
#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
#include "backend/cuda/own/mma.cuh"

namespace pelton::backend::cuda {
namespace {

// kDepth: depth and width of a head, rounded up. A block holds kHeld rows of two operands and walks over two
// others, kStage rows at a time, which are on their way while those before are used.
template <int kDepth_, int kStage_, int kTiles_>
struct Shape {
  static constexpr int kDepth = kDepth_, kStage = kStage_, kTiles = kTiles_, kWarps = 4;
  static constexpr int kThreads = 32 * kWarps, kOwn = 16 * kTiles, kHeld = kOwn * kWarps, kPitch = kDepth + 8;
  static constexpr int kHeldElements = kHeld * kPitch, kStageElements = kStage * kPitch;
  // Two held operands, two stages of two; two stages of two numbers a row.
  static constexpr int kShared = 2 * (2 * kHeldElements + 4 * kStageElements) + 4 * 4 * kStage;
  using Scores = float[kTiles][kStage / 8][4];
  using Rows = float[kTiles][kDepth / 8][4];
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

// sums[own rows x kStage] += held rows of the warp times rows of the stage, over the depth.
template <class T, class S>
__device__ __forceinline__ void products(typename S::Scores& sums, const T* held, const T* stage, int lane) {
#pragma unroll
  for (int d = 0; d < S::kDepth / 16; ++d) {
    uint32_t a[S::kTiles][4];
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t)
      load_matrices(a[t], held + (t * 16 + lane % 16) * S::kPitch + d * 16 + lane / 16 * 8);
#pragma unroll
    for (int j = 0; j < S::kStage / 16; ++j) {
      uint32_t b[4];
      load_matrices(b, stage + (j * 16 + lane / 16 * 8 + lane % 8) * S::kPitch + d * 16 + lane / 8 % 2 * 8);
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) {
        multiply_add<T>(sums[t][2 * j], a[t], b[0], b[1]);
        multiply_add<T>(sums[t][2 * j + 1], a[t], b[2], b[3]);
      }
    }
  }
}
// sums[own rows x kDepth] += weights[own rows x kStage] times the rows of the stage.
template <class T, class S>
__device__ __forceinline__ void combine(typename S::Rows& sums, const typename S::Scores& weights,
                                        const T* stage, int lane) {
#pragma unroll
  for (int j = 0; j < S::kStage / 16; ++j) {
    uint32_t a[S::kTiles][4];
#pragma unroll
    for (int t = 0; t < S::kTiles; ++t) {
      const float(&w)[S::kStage / 8][4] = weights[t];
      a[t][0] = pack_pair<T>(w[2 * j][0], w[2 * j][1]);
      a[t][1] = pack_pair<T>(w[2 * j][2], w[2 * j][3]);
      a[t][2] = pack_pair<T>(w[2 * j + 1][0], w[2 * j + 1][1]);
      a[t][3] = pack_pair<T>(w[2 * j + 1][2], w[2 * j + 1][3]);
    }
#pragma unroll
    for (int d = 0; d < S::kDepth / 16; ++d) {
      uint32_t b[4];
      load_matrices_transposed(
          b, stage + (j * 16 + lane / 8 % 2 * 8 + lane % 8) * S::kPitch + d * 16 + lane / 16 * 8);
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t) {
        multiply_add<T>(sums[t][2 * d], a[t], b[0], b[1]);
        multiply_add<T>(sums[t][2 * d + 1], a[t], b[2], b[3]);
      }
    }
  }
}
// The rows of a warp from its sums; those behind the last are left out.
template <class T, class S>
__device__ __forceinline__ void store_rows(T* to, int64_t stride, int first, int rows, int depth,
                                           const typename S::Rows& sums, int lane) {
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = first + t * 16 + lane / 4 + r * 8;
      if (row >= rows) continue;
#pragma unroll
      for (int d = 0; d < S::kDepth / 8; ++d)
        if (d * 8 < depth)
          *reinterpret_cast<uint32_t*>(to + row * stride + d * 8 + lane % 4 * 2) =
              pack_pair<T>(sums[t][d][2 * r], sums[t][d][2 * r + 1]);
    }
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
constexpr float kLog2E = 1.4426950408889634f;

// From a raw score and a raw gradient of a probability: the probability, and the gradient of the raw score.
// log_sum counts in powers of two. The first for a key that the query is known to see, without mask and cap.
__device__ __forceinline__ void whole_score(float power, float scale, float& score, float& slope,
                                            float log_sum, float row_sum) {
  const float p = exp2_fast(fmaf(score, power, -log_sum));
  score = p;
  slope = p * (slope - row_sum) * scale;
}
template <bool kPlain>
__device__ __forceinline__ void any_score(const Attention& g, float& score, float& slope, int image, int head,
                                          int query, int key, float log_sum, float row_sum) {
  float factor = g.scale;
  if constexpr (!kPlain) {
    if (g.softcap != 0) {
      const float t = tanhf(score * g.scale / g.softcap);
      factor *= 1 - t * t;
    }
  }
  const float s = finished_score<kPlain>(g, score, image, head, query, key);
  const float p = s == -INFINITY || log_sum == -INFINITY ? 0.0f : exp2_fast(fmaf(s, kLog2E, -log_sum));
  score = p;
  slope = p * (slope - row_sum) * factor;
}

// A warp a query: the sum of g y over its width.
template <class T>
__global__ void __launch_bounds__(128) row_sum_kernel(const AttentionBackward b) {
  let_next_start();
  inputs_ready();
  const Attention& f = b.forward;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * 4 + threadIdx.x / 32;
  if (row >= static_cast<int64_t>(f.n) * f.heads * f.queries) return;
  const int query = static_cast<int>(row % f.queries), head = static_cast<int>(row / f.queries % f.heads);
  const int64_t image = row / f.queries / f.heads;
  const T* const g =
      static_cast<const T*>(b.g) + image * b.g_strides[0] + head * b.g_strides[1] + query * b.g_strides[2];
  const T* const y =
      static_cast<const T*>(f.y) + image * f.y_strides[0] + head * f.y_strides[1] + query * f.y_strides[2];
  float sum = 0;
  for (int i = threadIdx.x % 32 * 4; i < f.width; i += 128) {
    float gv[4], yv[4];
    load_v<4>(g + i, gv);
    load_v<4>(y + i, yv);
#pragma unroll
    for (int e = 0; e < 4; ++e) sum = fmaf(gv[e], yv[e], sum);
  }
#pragma unroll
  for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, i);
  if (threadIdx.x % 32 == 0) b.row_sums[row] = sum;
}

// dk and dv of kHeld keys: blocks [keys, images and key heads].
template <class T, class S, bool kPlain>
__global__ void __launch_bounds__(S::kThreads) key_kernel(const AttentionBackward b) {
  extern __shared__ __align__(128) unsigned char shared[];
  const Attention& f = b.forward;
  T* const keys = reinterpret_cast<T*>(shared);
  T* const values = keys + S::kHeldElements;
  T* const stages = values + S::kHeldElements;
  float* const numbers = reinterpret_cast<float*>(stages + 4 * S::kStageElements);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int group = blockIdx.y % f.groups, image = blockIdx.y / f.groups, each = f.heads / f.groups;
  const int first_key = blockIdx.x * S::kHeld;
  // The first query that sees a key of the block.
  const int first_query = f.causal ? max(0, first_key - (f.keys - f.queries)) / S::kStage * S::kStage : 0;
  const int steps = first_query >= f.queries ? 0 : (f.queries - first_query + S::kStage - 1) / S::kStage;

  let_next_start();
  inputs_ready();
  copy_rows<T, S, S::kHeld>(keys,
                            static_cast<const T*>(f.k) + image * f.k_strides[0] + group * f.k_strides[1],
                            f.k_strides[2], first_key, f.keys, f.depth);
  copy_rows<T, S, S::kHeld>(values,
                            static_cast<const T*>(f.v) + image * f.v_strides[0] + group * f.v_strides[1],
                            f.v_strides[2], first_key, f.keys, f.width);
  auto copy_stage = [&](int step) {
    if (step < steps * each) {
      const int head = group * each + step / steps, query = first_query + step % steps * S::kStage;
      T* const to = stages + step % 2 * 2 * S::kStageElements;
      copy_rows<T, S, S::kStage>(to,
                                 static_cast<const T*>(f.q) + image * f.q_strides[0] + head * f.q_strides[1],
                                 f.q_strides[2], query, f.queries, f.depth);
      copy_rows<T, S, S::kStage>(to + S::kStageElements,
                                 static_cast<const T*>(b.g) + image * b.g_strides[0] + head * b.g_strides[1],
                                 b.g_strides[2], query, f.queries, f.width);
      const int64_t row = (static_cast<int64_t>(image) * f.heads + head) * f.queries + query;
      float* const n = numbers + step % 2 * 2 * S::kStage;
      for (int i = threadIdx.x; i < S::kStage; i += S::kThreads) {
        const bool there = query + i < f.queries;
        n[i] = there ? f.log_sums[row + i] * kLog2E : -INFINITY;
        n[S::kStage + i] = there ? b.row_sums[row + i] : 0.0f;
      }
    }
    commit_copies();
  };
  copy_stage(0);
  typename S::Rows dk = {}, dv = {};
  const T* const own_keys = keys + warp * S::kOwn * S::kPitch;
  const T* const own_values = values + warp * S::kOwn * S::kPitch;
  const int own = first_key + warp * S::kOwn + lane / 4;
  for (int step = 0; step < steps * each; ++step) {
    copy_stage(step + 1);
    wait_copies<1>();
    __syncthreads();
    const int head = group * each + step / steps, query = first_query + step % steps * S::kStage;
    const T* const queries = stages + step % 2 * 2 * S::kStageElements;
    const T* const gradients = queries + S::kStageElements;
    const float* const n = numbers + step % 2 * 2 * S::kStage;
    typename S::Scores scores = {}, slopes = {};
    products<T, S>(scores, own_keys, queries, lane);
    products<T, S>(slopes, own_values, gradients, lane);
    const bool whole = kPlain && first_key + S::kHeld <= f.keys && query + S::kStage <= f.queries &&
                       (!f.causal || first_key + S::kHeld - 1 <= query + f.keys - f.queries);
    const float power = f.scale * kLog2E;
#pragma unroll
    for (int j = 0; j < S::kStage / 8; ++j) {
      const int column = j * 8 + lane % 4 * 2;
      const float2 log_sum = *reinterpret_cast<const float2*>(n + column);
      const float2 row_sum = *reinterpret_cast<const float2*>(n + S::kStage + column);
      if (whole) {
#pragma unroll
        for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            whole_score(power, f.scale, scores[t][j][e], slopes[t][j][e], e % 2 ? log_sum.y : log_sum.x,
                        e % 2 ? row_sum.y : row_sum.x);
      } else {
#pragma unroll
        for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            any_score<kPlain>(f, scores[t][j][e], slopes[t][j][e], image, head, query + column + e % 2,
                              own + t * 16 + e / 2 * 8, e % 2 ? log_sum.y : log_sum.x,
                              e % 2 ? row_sum.y : row_sum.x);
      }
    }
    combine<T, S>(dv, scores, gradients, lane);
    combine<T, S>(dk, slopes, queries, lane);
    __syncthreads();
  }
  store_rows<T, S>(static_cast<T*>(b.dk) + image * b.dk_strides[0] + group * b.dk_strides[1], b.dk_strides[2],
                   first_key + warp * S::kOwn, f.keys, f.depth, dk, lane);
  store_rows<T, S>(static_cast<T*>(b.dv) + image * b.dv_strides[0] + group * b.dv_strides[1], b.dv_strides[2],
                   first_key + warp * S::kOwn, f.keys, f.width, dv, lane);
}

// dq of kHeld queries: blocks [queries, images and heads].
template <class T, class S, bool kPlain>
__global__ void __launch_bounds__(S::kThreads) query_kernel(const AttentionBackward b) {
  extern __shared__ __align__(128) unsigned char shared[];
  const Attention& f = b.forward;
  T* const queries = reinterpret_cast<T*>(shared);
  T* const gradients = queries + S::kHeldElements;
  T* const stages = gradients + S::kHeldElements;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int head = blockIdx.y % f.heads, image = blockIdx.y / f.heads, group = head / (f.heads / f.groups);
  // The last queries see the most keys: they start first.
  const int block = f.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int first_query = block * S::kHeld;
  int limit = f.keys;  // keys that some query of the block sees
  if (f.causal) limit = min(limit, max(0, first_query + S::kHeld + f.keys - f.queries));
  const int steps = (limit + S::kStage - 1) / S::kStage;

  let_next_start();
  inputs_ready();
  copy_rows<T, S, S::kHeld>(queries,
                            static_cast<const T*>(f.q) + image * f.q_strides[0] + head * f.q_strides[1],
                            f.q_strides[2], first_query, f.queries, f.depth);
  copy_rows<T, S, S::kHeld>(gradients,
                            static_cast<const T*>(b.g) + image * b.g_strides[0] + head * b.g_strides[1],
                            b.g_strides[2], first_query, f.queries, f.width);
  const T* const k = static_cast<const T*>(f.k) + image * f.k_strides[0] + group * f.k_strides[1];
  const T* const v = static_cast<const T*>(f.v) + image * f.v_strides[0] + group * f.v_strides[1];
  auto copy_stage = [&](int step) {
    if (step < steps) {
      T* const to = stages + step % 2 * 2 * S::kStageElements;
      copy_rows<T, S, S::kStage>(to, k, f.k_strides[2], step * S::kStage, f.keys, f.depth);
      copy_rows<T, S, S::kStage>(to + S::kStageElements, v, f.v_strides[2], step * S::kStage, f.keys,
                                 f.width);
    }
    commit_copies();
  };
  copy_stage(0);
  float log_sums[S::kTiles][2], row_sums[S::kTiles][2];
  const int own = first_query + warp * S::kOwn + lane / 4;
#pragma unroll
  for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = own + t * 16 + r * 8;
      const int64_t row = (static_cast<int64_t>(image) * f.heads + head) * f.queries + query;
      const bool there = query < f.queries;
      log_sums[t][r] = there ? f.log_sums[row] * kLog2E : -INFINITY;
      row_sums[t][r] = there ? b.row_sums[row] : 0.0f;
    }
  typename S::Rows dq = {};
  for (int step = 0; step < steps; ++step) {
    copy_stage(step + 1);
    wait_copies<1>();
    __syncthreads();
    const T* const keys = stages + step % 2 * 2 * S::kStageElements;
    typename S::Scores scores = {}, slopes = {};
    products<T, S>(scores, queries + warp * S::kOwn * S::kPitch, keys, lane);
    products<T, S>(slopes, gradients + warp * S::kOwn * S::kPitch, keys + S::kStageElements, lane);
    const int first_key = step * S::kStage;
    const bool whole = kPlain && first_key + S::kStage <= f.keys && first_query + S::kHeld <= f.queries &&
                       (!f.causal || first_key + S::kStage - 1 <= first_query + f.keys - f.queries);
    const float power = f.scale * kLog2E;
    if (whole) {
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
        for (int j = 0; j < S::kStage / 8; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            whole_score(power, f.scale, scores[t][j][e], slopes[t][j][e], log_sums[t][e / 2],
                        row_sums[t][e / 2]);
    } else {
#pragma unroll
      for (int t = 0; t < S::kTiles; ++t)
#pragma unroll
        for (int j = 0; j < S::kStage / 8; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            any_score<kPlain>(f, scores[t][j][e], slopes[t][j][e], image, head, own + t * 16 + e / 2 * 8,
                              first_key + j * 8 + lane % 4 * 2 + e % 2, log_sums[t][e / 2],
                              row_sums[t][e / 2]);
    }
    combine<T, S>(dq, slopes, keys, lane);
    __syncthreads();
  }
  store_rows<T, S>(static_cast<T*>(b.dq) + image * b.dq_strides[0] + head * b.dq_strides[1], b.dq_strides[2],
                   first_query + warp * S::kOwn, f.queries, f.depth, dq, lane);
}

template <class S, class K>
cudaError_t start_kernel(K kernel, int rows, int64_t columns, const AttentionBackward& b,
                         cudaStream_t stream) {
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kShared);
  if (allowed != cudaSuccess || rows == 0 || columns == 0) return allowed;
  return launch(kernel, dim3((rows + S::kHeld - 1) / S::kHeld, static_cast<unsigned>(columns)),
                dim3(S::kThreads), S::kShared, stream, b);
}
template <class T, class S, bool kPlain>
cudaError_t start(const AttentionBackward& b, cudaStream_t stream) {
  const Attention& f = b.forward;
  const int64_t images = f.n;
  const cudaError_t status = start_kernel<S>(&key_kernel<T, S, kPlain>, f.keys, images * f.groups, b, stream);
  if (status != cudaSuccess) return status;
  return start_kernel<S>(&query_kernel<T, S, kPlain>, f.queries, images * f.heads, b, stream);
}
template <class T, class S>
cudaError_t start_kind(const AttentionBackward& b, cudaStream_t stream) {
  const int64_t rows = static_cast<int64_t>(b.forward.n) * b.forward.heads * b.forward.queries;
  if (rows > 0) {
    const cudaError_t status =
        launch(&row_sum_kernel<T>, dim3(static_cast<unsigned>((rows + 3) / 4)), dim3(128), 0, stream, b);
    if (status != cudaSuccess) return status;
  }
  if (b.forward.mask_kind == Attention::no_mask && b.forward.softcap == 0)
    return start<T, S, true>(b, stream);
  return start<T, S, false>(b, stream);
}
template <class T>
cudaError_t start_type(const AttentionBackward& b, cudaStream_t stream) {
  const int depth = b.forward.depth > b.forward.width ? b.forward.depth : b.forward.width;
  if (depth <= 32) return start_kind<T, Shape<32, 64, 1>>(b, stream);
  if (depth <= 64) return start_kind<T, Shape<64, 64, 1>>(b, stream);
  return start_kind<T, Shape<128, 32, 1>>(b, stream);
}

}  // namespace

cudaError_t attention_backward(const AttentionBackward& b, cudaStream_t stream) {
  return b.forward.type == Elem::f16 ? start_type<__half>(b, stream) : start_type<__nv_bfloat16>(b, stream);
}

}  // namespace pelton::backend::cuda
