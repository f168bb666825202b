// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/rows_backward.h"

#include <algorithm>

#include "backend/cuda/own/cluster.cuh"
#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
// After these.
#include "backend/cuda/own/rows_backward.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kBlock = 256;  // threads of the kernels for long rows

// Over the block; every thread gets the result. `shared`: one a warp.
__device__ __forceinline__ float2 block_sum(float2 v, float2* shared) {
  __syncthreads();
  return team_sum<kBlock>(v, shared, 0);
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

bool aligned(const RowsBackward& d) {
  for (const void* p : {d.g, d.x, d.scale, d.added, const_cast<const void*>(d.dx)})
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  return true;
}
int vector_of(const RowsBackward& d) {
  return d.type == Elem::f32 ? 4 : 8;
}
// Threads that a row takes, and chunks of them; 0: it is too long, or does not split into vectors.
struct Team {
  int threads = 0, chunks = 1;
};
Team team_of(const RowsBackward& d) {
  const int v = vector_of(d);
  if (d.size % v != 0) return {};
  const int64_t vectors = d.size / v;
  for (int threads : {32, 64, 96, 128, 256})
    if (vectors <= threads) return {threads, 1};
  if (vectors <= 512) return {256, 2};
  if (d.size <= 4096) return {256, 4};
  return {};
}
int parts_of(const RowsBackward& d) {
  const int threads = team_of(d).threads;
  const int64_t at_once = threads == 96 ? 3 : threads > 0 ? 256 / threads : 1;
  return static_cast<int>(
      std::clamp<int64_t>((d.rows + at_once - 1) / at_once, 1, int64_t{d.multiprocessors} * 2));
}

template <class T, int V, int kTeam, int kChunks>
cudaError_t start(const RowsBackward& d, cudaStream_t stream) {
  const int blocks = parts_of(d);
  const dim3 grid(static_cast<unsigned>(blocks)), block(kRowsBlock<kTeam>);
  if (d.parameters)
    return launch(&rows_backward_kernel<T, V, kTeam, kChunks, true>, grid, block,
                  static_cast<size_t>(2 * d.size) * sizeof(float), stream, d, blocks);
  return launch(&rows_backward_kernel<T, V, kTeam, kChunks, false>, grid, block, 0, stream, d, blocks);
}
template <class T, int V>
cudaError_t start_any(const RowsBackward& d, cudaStream_t stream) {
  const Team team = aligned(d) ? team_of(d) : Team();
  switch (team.threads * team.chunks) {
    case 32:
      return start<T, V, 32, 1>(d, stream);
    case 64:
      return start<T, V, 64, 1>(d, stream);
    case 96:
      return start<T, V, 96, 1>(d, stream);
    case 128:
      return start<T, V, 128, 1>(d, stream);
    case 256:
      return start<T, V, 256, 1>(d, stream);
    case 512:
      return start<T, V, 256, 2>(d, stream);
    case 1024:
      return start<T, V, 256, 4>(d, stream);
    default:
      break;
  }
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
  return launch(&rows_finish_kernel, dim3(static_cast<unsigned>((d.size + 31) / 32), 2), dim3(kFinishThreads),
                0, stream, d, parts_of(d));
}

}  // namespace pelton::backend::cuda
