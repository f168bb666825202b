// SPDX-License-Identifier: Apache-2.0
// The kernels of rows_backward.h for rows that threads hold in registers. Included after device.cuh and
// launch.cuh or what stands in for them.
#pragma once

#include "backend/cuda/own/rows_backward.h"

namespace pelton::backend::cuda {

// Over the kTeam threads of a row; each of them gets the result. `shared` has a place for each of their
// warps, another one than in the call before.
template <int kTeam>
__device__ __forceinline__ float2 team_sum(float2 v, float2* shared, int team) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) {
    v.x += __shfl_xor_sync(0xFFFFFFFFu, v.x, i);
    v.y += __shfl_xor_sync(0xFFFFFFFFu, v.y, i);
  }
  if (kTeam == 32) return v;
  if (threadIdx.x % 32 == 0) shared[threadIdx.x % kTeam / 32] = v;
  named_barrier(team + 1, kTeam);
  float2 sum = shared[0];
#pragma unroll
  for (int i = 1; i < kTeam / 32; ++i) {
    sum.x += shared[i].x;
    sum.y += shared[i].y;
  }
  return sum;
}

// Threads of a block whose rows have kTeam threads each.
template <int kTeam>
constexpr int kRowsBlock = kTeam == 96 ? 288 : 256;

// dx = rstd (s - mean(s) - h mean(s h)) with h = (x - mean) rstd and s = g scale. kTeam threads a row, which
// take kChunks * V elements each; the columns of a thread are the same in every row, so its sums for scale
// and bias stay in registers. partial[block][2][size].
template <class T, int V, int kTeam, int kChunks, bool kParameters>
__global__ void __launch_bounds__(kRowsBlock<kTeam>, kChunks == 1 ? 2 : 1)
    rows_backward_kernel(const RowsBackward d, int blocks) {
  constexpr int kBlock = kRowsBlock<kTeam>, kRows = kBlock / kTeam;
  __shared__ float2 shared[2][kRows][kTeam / 32];
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
  Pack<T, V> next_g[kChunks] = {}, next_x[kChunks] = {};
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
  int turn = 0;
  const int64_t step = static_cast<int64_t>(blocks) * kRows;
  fetch(static_cast<int64_t>(blockIdx.x) * kRows + team);
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kRows; first < d.rows; first += step) {
    const int64_t row = first + team;
    const bool idle = row >= d.rows;  // a team
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
    sums = team_sum<kTeam>(sums, shared[turn][team], team);
    turn ^= 1;
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
    float* const columns = reinterpret_cast<float*>(launched_shared());  // [2][size]
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

// A block 32 columns of dscale or dbias: the sum over `parts`.
constexpr int kFinishThreads = 1024;
__global__ void __launch_bounds__(kFinishThreads) rows_finish_kernel(const RowsBackward d, int parts) {
  constexpr int kTeams = kFinishThreads / 32;
  __shared__ double shared[kTeams][32];
  let_next_start();
  inputs_ready();
  void* const to = blockIdx.y == 0 ? d.dscale : d.dbias;
  if (!to) return;
  const int lane = threadIdx.x % 32, part = threadIdx.x / 32;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  double sum = 0;
  if (i < d.size)
#pragma unroll 8
    for (int p = part; p < parts; p += kTeams)
      sum += d.scratch[(static_cast<int64_t>(p) * 2 + blockIdx.y) * d.size + i];
  shared[part][lane] = sum;
  __syncthreads();
  if (part != 0 || i >= d.size) return;
#pragma unroll
  for (int p = 1; p < kTeams; ++p) sum += shared[p][lane];
  const float one[1] = {static_cast<float>(sum)};
  store_as<1>(d.parameter_type, to, i, one);
}

}  // namespace pelton::backend::cuda
