// SPDX-License-Identifier: Apache-2.0
// A warp takes kColumns columns of a row: the row is read once, its lanes share out the sum.
#include "backend/cuda/own/edge_columns.h"

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kWarps = 4, kColumns = 8;
constexpr int64_t kMostColumnBlocks = 65535;

template <class T>
__global__ void __launch_bounds__(kWarps * 32) kernel(const EdgeColumns p) {
  constexpr int V = 16 / sizeof(T);
  let_next_start();
  inputs_ready();
  const int lane = threadIdx.x % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= p.rows) return;
  const int64_t middle = p.step * (row % p.units), edges = p.columns - p.middle;
  const T* const a = static_cast<const T*>(p.a) + row * p.k;
  for (int64_t first = static_cast<int64_t>(blockIdx.y) * kColumns; first < edges;
       first += static_cast<int64_t>(gridDim.y) * kColumns) {
    float sums[kColumns] = {};
    for (int64_t at = lane * V; at < p.k; at += 32 * V) {
      float x[V];
      load_v<V>(a + at, x);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int64_t edge = first + c;
        if (edge >= edges) break;
        float w[V];
        load_v<V>(static_cast<const T*>(p.b) + (edge < middle ? edge : edge + p.middle) * p.k + at, w);
#pragma unroll
        for (int i = 0; i < V; ++i) sums[c] = fmaf(x[i], w[i], sums[c]);
      }
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
#pragma unroll
      for (int i = 16; i > 0; i /= 2) sums[c] += __shfl_xor_sync(0xFFFFFFFFu, sums[c], i);
      const int64_t edge = first + c;
      if (lane != c || edge >= edges) continue;
      const float y[1] = {p.alpha * sums[c]};
      store_as<1>(p.out, p.y, row * p.columns + (edge < middle ? edge : edge + p.middle), y);
    }
  }
}

template <class T>
cudaError_t start(const EdgeColumns& p, cudaStream_t stream) {
  const int64_t groups = (p.columns - p.middle + kColumns - 1) / kColumns;
  const dim3 grid(static_cast<unsigned>((p.rows + kWarps - 1) / kWarps),
                  static_cast<unsigned>(groups < kMostColumnBlocks ? groups : kMostColumnBlocks));
  return launch(&kernel<T>, grid, dim3(kWarps * 32), 0, stream, p);
}

}  // namespace

cudaError_t edge_columns(const EdgeColumns& p, cudaStream_t stream) {
  if (p.rows == 0 || p.columns == p.middle) return cudaSuccess;
  switch (p.in) {
    case Elem::f16:
      return start<__half>(p, stream);
    case Elem::bf16:
      return start<__nv_bfloat16>(p, stream);
    default:
      return start<float>(p, stream);
  }
}

}  // namespace pelton::backend::cuda
