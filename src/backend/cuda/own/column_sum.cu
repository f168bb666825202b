// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/column_sum.h"

#include <algorithm>

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256, kAtOnce = 8;  // vectors that a thread has on their way

// A block has `lanes` groups of V columns and kThreads / lanes rows; blocks [tiles of columns, parts].
struct Shares {
  int lanes = 1, parts = 1;
  int64_t tiles = 1;
};
int vector_of(const ColumnSum& d) {
  const int v = d.type == Elem::f32 ? 4 : 8;
  return d.c % v == 0 ? v : 1;
}
Shares shares_of(const ColumnSum& d) {
  Shares s;
  const int64_t groups = std::max<int64_t>(1, d.c / vector_of(d));
  s.lanes = static_cast<int>(std::min<int64_t>(groups, 64));
  s.tiles = (groups + s.lanes - 1) / s.lanes;
  const int64_t rows = d.rows / (kThreads / s.lanes),
                most = std::max<int64_t>(1, d.multiprocessors * 8 / s.tiles);
  s.parts = static_cast<int>(std::clamp<int64_t>(rows / kAtOnce, 1, most));
  return s;
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) sums_kernel(const ColumnSum d, const Shares share) {
  __shared__ float shared[kThreads * V];
  const int teams = kThreads / share.lanes, team = threadIdx.x / share.lanes;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * share.lanes + threadIdx.x % share.lanes) * V;
  const bool idle = team >= teams || column >= d.c;
  const int64_t step = static_cast<int64_t>(gridDim.y) * teams;
  let_next_start();
  inputs_ready();
  float sum[V] = {};
  const T* const x = static_cast<const T*>(d.x) + column;
  int64_t row = static_cast<int64_t>(blockIdx.y) * teams + team;
  for (; !idle && row + (kAtOnce - 1) * step < d.rows; row += kAtOnce * step) {
    float v[kAtOnce][V];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) load_v<V>(x + (row + k * step) * d.c, v[k]);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
      for (int e = 0; e < V; ++e) sum[e] += v[k][e];
  }
  for (; !idle && row < d.rows; row += step) {
    float v[V];
    load_v<V>(x + row * d.c, v);
#pragma unroll
    for (int e = 0; e < V; ++e) sum[e] += v[e];
  }
#pragma unroll
  for (int e = 0; e < V; ++e) shared[threadIdx.x * V + e] = sum[e];
  __syncthreads();
  const int width = share.lanes * V;
  for (int i = threadIdx.x; i < width; i += kThreads) {
    const int64_t c = static_cast<int64_t>(blockIdx.x) * width + i;
    float all = 0;
    for (int t = 0; t < teams; ++t) all += shared[t * width + i];
    if (c < d.c) d.scratch[static_cast<int64_t>(blockIdx.y) * d.c + c] = all;
  }
}

// A block 32 columns.
__global__ void __launch_bounds__(kThreads) finish_kernel(const ColumnSum d, int parts) {
  __shared__ double shared[kThreads / 32][32];
  let_next_start();
  inputs_ready();
  const int lane = threadIdx.x % 32, part = threadIdx.x / 32;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  double sum = 0;
  if (c < d.c)
#pragma unroll 8
    for (int p = part; p < parts; p += kThreads / 32) sum += d.scratch[static_cast<int64_t>(p) * d.c + c];
  shared[part][lane] = sum;
  __syncthreads();
  if (part != 0 || c >= d.c) return;
  for (int p = 1; p < kThreads / 32; ++p) sum += shared[p][lane];
  store_as<1>(d.y_type, d.y, c, {static_cast<float>(sum)});
}

template <class T, int V>
cudaError_t start(const ColumnSum& d, cudaStream_t stream) {
  const Shares share = shares_of(d);
  const cudaError_t status = launch(&sums_kernel<T, V>, dim3(static_cast<unsigned>(share.tiles), share.parts),
                                    dim3(kThreads), 0, stream, d, share);
  if (status != cudaSuccess) return status;
  return launch(&finish_kernel, dim3(static_cast<unsigned>((d.c + 31) / 32)), dim3(kThreads), 0, stream, d,
                share.parts);
}

}  // namespace

int64_t column_sum_scratch_bytes(const ColumnSum& d) {
  return static_cast<int64_t>(shares_of(d).parts) * d.c * 4;
}

cudaError_t column_sum(const ColumnSum& d, cudaStream_t stream) {
  if (d.c == 0) return cudaSuccess;
  const bool wide = vector_of(d) > 1;
  if (d.type == Elem::f16) return wide ? start<__half, 8>(d, stream) : start<__half, 1>(d, stream);
  if (d.type == Elem::bf16)
    return wide ? start<__nv_bfloat16, 8>(d, stream) : start<__nv_bfloat16, 1>(d, stream);
  return wide ? start<float, 4>(d, stream) : start<float, 1>(d, stream);
}

}  // namespace pelton::backend::cuda
