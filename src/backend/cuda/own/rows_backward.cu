// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/rows_backward.h"

#include <algorithm>

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kBlock = 256;

__device__ __forceinline__ float2 warp_sum(float2 v) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) {
    v.x += __shfl_xor_sync(0xFFFFFFFFu, v.x, i);
    v.y += __shfl_xor_sync(0xFFFFFFFFu, v.y, i);
  }
  return v;
}
// Over the block; every thread gets the result. `shared`: one a warp.
__device__ __forceinline__ float2 block_sum(float2 v, float2* shared) {
  v = warp_sum(v);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  float2 sum = shared[0];
#pragma unroll
  for (int i = 1; i < kBlock / 32; ++i) {
    sum.x += shared[i].x;
    sum.y += shared[i].y;
  }
  return sum;
}

// dx = rstd (s - mean(s) - h mean(s h)) with h = (x - mean) rstd and s = g scale. kTeam threads a row, a warp
// or the block, which take kChunks * V elements each; the columns of a thread are the same in every row, so
// its sums for scale and bias stay in registers. partial[block][2][size].
template <class T, int V, int kTeam, int kChunks, bool kParameters>
__global__ void __launch_bounds__(kBlock) kernel(const RowsBackward d) {
  constexpr int kRows = kBlock / kTeam;
  __shared__ float2 shared[kBlock / 32];
  const int thread = threadIdx.x % kTeam, team = threadIdx.x / kTeam;
  let_next_start();
  inputs_ready();
  float dscale[kChunks][V] = {}, dbias[kChunks][V] = {}, scale[kChunks][V];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int at = (c * kTeam + thread) * V;
#pragma unroll
    for (int e = 0; e < V; ++e) scale[c][e] = 1;
    if (d.scale && at < d.size) load_as<V>(d.scale_type, d.scale, at, scale[c]);
  }
  const int size = static_cast<int>(d.size);  // rows that are longer go to long_kernel
  const float count = static_cast<float>(size);
  // A row is on its way while the one before is used.
  Pack<T, V> next_g[kChunks], next_x[kChunks];
  float next_mean = 0, next_rstd = 0;
  auto fetch = [&](int64_t row) {
    if (row >= d.rows) return;
    next_mean = d.mean ? d.mean[row] : 0.0f;
    next_rstd = d.rstd[row];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int at = (c * kTeam + thread) * V;
      if (at >= size) continue;
      next_g[c] = *reinterpret_cast<const Pack<T, V>*>(static_cast<const T*>(d.g) + row * d.size + at);
      next_x[c] = *reinterpret_cast<const Pack<T, V>*>(static_cast<const T*>(d.x) + row * d.size + at);
    }
  };
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRows;
  fetch(static_cast<int64_t>(blockIdx.x) * kRows + team);
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kRows; first < d.rows; first += step) {
    const int64_t row = first + team;
    const bool idle = row >= d.rows;  // whole warps; a block's team is never idle
    const float mean = next_mean, rstd = next_rstd;
    float g[kChunks][V], h[kChunks][V];
    float2 sums = {0, 0};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const bool there = !idle && (c * kTeam + thread) * V < size;
#pragma unroll
      for (int e = 0; e < V; ++e) {
        g[c][e] = there ? to_float(next_g[c].v[e]) : 0.0f;
        h[c][e] = there ? (to_float(next_x[c].v[e]) - mean) * rstd : 0.0f;
      }
    }
    fetch(row + step);
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int e = 0; e < V; ++e) {
        if (kParameters) {
          dscale[c][e] = fmaf(g[c][e], h[c][e], dscale[c][e]);
          dbias[c][e] += g[c][e];
        }
        g[c][e] *= scale[c][e];
        sums.x += g[c][e];
        sums.y = fmaf(g[c][e], h[c][e], sums.y);
      }
    sums = kTeam == 32 ? warp_sum(sums) : block_sum(sums, shared);
    const float shift = d.mean ? sums.x / count : 0.0f, slope = sums.y / count;
    if (idle) continue;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int at = (c * kTeam + thread) * V;
      if (at >= size) continue;
#pragma unroll
      for (int e = 0; e < V; ++e) g[c][e] = rstd * (g[c][e] - shift - h[c][e] * slope);
      if (d.added) {
        float more[V];
        load_v<V>(static_cast<const T*>(d.added) + row * d.size + at, more);
#pragma unroll
        for (int e = 0; e < V; ++e) g[c][e] += more[e];
      }
      store_v<V>(static_cast<T*>(d.dx) + row * d.size + at, g[c]);
    }
  }
  if constexpr (kParameters) {
    // The teams of the block in order.
    extern __shared__ float columns[];  // [2][size]
    for (int t = 0; t < kRows; ++t) {
      if (team == t)
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
          const int at = (c * kTeam + thread) * V;
          if (at >= size) continue;
#pragma unroll
          for (int e = 0; e < V; ++e) {
            columns[at + e] = dscale[c][e] + (t > 0 ? columns[at + e] : 0.0f);
            columns[size + at + e] = dbias[c][e] + (t > 0 ? columns[size + at + e] : 0.0f);
          }
        }
      __syncthreads();
    }
    float* const partial = d.scratch + static_cast<int64_t>(blockIdx.x) * 2 * size;
    for (int i = threadIdx.x; i < 2 * size; i += kBlock) partial[i] = columns[i];
  }
}

// Rows of any size, a block each, read again for each step.
template <class T>
__global__ void __launch_bounds__(kBlock) long_kernel(const RowsBackward d) {
  __shared__ float2 shared[kBlock / 32];
  let_next_start();
  inputs_ready();
  for (int64_t row = blockIdx.x; row < d.rows; row += gridDim.x) {
    const T* const g = static_cast<const T*>(d.g) + row * d.size;
    const T* const x = static_cast<const T*>(d.x) + row * d.size;
    const float mean = d.mean ? d.mean[row] : 0.0f, rstd = d.rstd[row];
    auto scaled = [&](int64_t i) {
      float one[1] = {1};
      if (d.scale) load_as<1>(d.scale_type, d.scale, i, one);
      return to_float(g[i]) * one[0];
    };
    float2 sums = {0, 0};
    for (int64_t i = threadIdx.x; i < d.size; i += kBlock) {
      const float s = scaled(i);
      sums.x += s;
      sums.y = fmaf(s, (to_float(x[i]) - mean) * rstd, sums.y);
    }
    sums = block_sum(sums, shared);
    const float shift = d.mean ? sums.x / d.size : 0.0f, slope = sums.y / d.size;
    for (int64_t i = threadIdx.x; i < d.size; i += kBlock) {
      float v = rstd * (scaled(i) - shift - (to_float(x[i]) - mean) * rstd * slope);
      if (d.added) v += to_float(static_cast<const T*>(d.added)[row * d.size + i]);
      static_cast<T*>(d.dx)[row * d.size + i] = from_float<T>(v);
    }
  }
}
// Sums over a share of the rows, a thread a column: partial[block.y][2][size].
template <class T>
__global__ void __launch_bounds__(kBlock) columns_kernel(const RowsBackward d) {
  let_next_start();
  inputs_ready();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (i >= d.size) return;
  float dscale = 0, dbias = 0;
  for (int64_t row = blockIdx.y; row < d.rows; row += gridDim.y) {
    const float g = to_float(static_cast<const T*>(d.g)[row * d.size + i]);
    const float x = to_float(static_cast<const T*>(d.x)[row * d.size + i]);
    dscale = fmaf(g, (x - (d.mean ? d.mean[row] : 0.0f)) * d.rstd[row], dscale);
    dbias += g;
  }
  float* const partial = d.scratch + static_cast<int64_t>(blockIdx.y) * 2 * d.size;
  partial[i] = dscale;
  partial[d.size + i] = dbias;
}

// A block 32 columns of dscale or dbias: the sum over `parts`.
__global__ void __launch_bounds__(kBlock) finish_kernel(const RowsBackward d, int parts) {
  __shared__ double shared[kBlock / 32][32];
  let_next_start();
  inputs_ready();
  void* const to = blockIdx.y == 0 ? d.dscale : d.dbias;
  if (!to) return;
  const int lane = threadIdx.x % 32, part = threadIdx.x / 32;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  double sum = 0;
  if (i < d.size)
#pragma unroll 4
    for (int p = part; p < parts; p += kBlock / 32)
      sum += d.scratch[(static_cast<int64_t>(p) * 2 + blockIdx.y) * d.size + i];
  shared[part][lane] = sum;
  __syncthreads();
  if (part != 0 || i >= d.size) return;
  for (int p = 1; p < kBlock / 32; ++p) sum += shared[p][lane];
  store_as<1>(d.parameter_type, to, i, {static_cast<float>(sum)});
}

bool aligned(const RowsBackward& d) {
  for (const void* p : {d.g, d.x, d.scale, d.added, const_cast<const void*>(d.dx)})
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  return true;
}
int vector_of(const RowsBackward& d) {
  return d.type == Elem::f32 ? 4 : 8;
}
// Chunks of 256 threads that a row takes; 0: it is too long, or does not split into vectors.
int chunks_of(const RowsBackward& d) {
  const int v = vector_of(d);
  if (d.size % v != 0) return 0;
  const int64_t chunks = (d.size / v + 255) / 256;
  return chunks <= 1 ? 1 : chunks <= 2 ? 2 : chunks <= 4 && d.size <= 4096 ? 4 : 0;
}
bool warp_rows(const RowsBackward& d) {
  return d.size / vector_of(d) <= 128;
}
int parts_of(const RowsBackward& d) {
  const int64_t rows = chunks_of(d) > 0 && warp_rows(d) ? (d.rows + 7) / 8 : d.rows;
  return static_cast<int>(std::clamp<int64_t>(rows, 1, d.multiprocessors * 2));
}

template <class T, int V, int kTeam, int kChunks>
cudaError_t start(const RowsBackward& d, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(parts_of(d)));
  if (d.parameters)
    return launch(&kernel<T, V, kTeam, kChunks, true>, grid, dim3(kBlock),
                  static_cast<size_t>(2 * d.size) * sizeof(float), stream, d);
  return launch(&kernel<T, V, kTeam, kChunks, false>, grid, dim3(kBlock), 0, stream, d);
}
template <class T, int V>
cudaError_t start_any(const RowsBackward& d, cudaStream_t stream) {
  const int chunks = aligned(d) ? chunks_of(d) : 0;
  const int64_t vectors = d.size / V;
  if (chunks > 0 && warp_rows(d)) {
    if (vectors <= 32) return start<T, V, 32, 1>(d, stream);
    if (vectors <= 64) return start<T, V, 32, 2>(d, stream);
    if (vectors <= 96) return start<T, V, 32, 3>(d, stream);
    return start<T, V, 32, 4>(d, stream);
  }
  if (chunks == 1) return start<T, V, 256, 1>(d, stream);
  if (chunks == 2) return start<T, V, 256, 2>(d, stream);
  if (chunks == 4) return start<T, V, 256, 4>(d, stream);
  const auto rows = static_cast<unsigned>(std::clamp<int64_t>(d.rows, 1, d.multiprocessors * 8));
  const cudaError_t status = launch(&long_kernel<T>, dim3(rows), dim3(kBlock), 0, stream, d);
  if (status != cudaSuccess || !d.parameters) return status;
  return launch(&columns_kernel<T>, dim3(static_cast<unsigned>((d.size + kBlock - 1) / kBlock), parts_of(d)),
                dim3(kBlock), 0, stream, d);
}

}  // namespace

int64_t rows_backward_scratch_bytes(const RowsBackward& d) {
  return d.parameters ? static_cast<int64_t>(parts_of(d)) * 2 * d.size * 4 : 0;
}

cudaError_t rows_backward(const RowsBackward& d, cudaStream_t stream) {
  if (d.size == 0) return cudaSuccess;
  cudaError_t status = cudaSuccess;
  if (d.type == Elem::f16)
    status = start_any<__half, 8>(d, stream);
  else if (d.type == Elem::bf16)
    status = start_any<__nv_bfloat16, 8>(d, stream);
  else
    status = start_any<float, 4>(d, stream);
  if (status != cudaSuccess || !d.parameters) return status;
  return launch(&finish_kernel, dim3(static_cast<unsigned>((d.size + 31) / 32), 2), dim3(kBlock), 0, stream,
                d, parts_of(d));
}

}  // namespace pelton::backend::cuda
