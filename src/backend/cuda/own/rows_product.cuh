// SPDX-License-Identifier: Apache-2.0
// The kernel of rows_product.h. It includes nothing but that: the .cu includes the device's primitives
// (mma.cuh, launch.cuh) before it, a test those of an emulation (tests/backend/cuda/emulated.h).
#pragma once

#include "backend/cuda/own/rows_product.h"

#ifdef __CUDACC__
#define PELTON_UNROLL _Pragma("unroll")
#else
#define PELTON_UNROLL
#endif

namespace pelton::backend::cuda {

constexpr int kRowsThreads = 128, kRowsDepth = 32, kRowsStages = 4;

// A tile of kDepth rows of W columns in shared memory, in chunks of 8 elements whose places turn from row to
// row: eight rows of one chunk, which is what the matrix loads read at a time, lie in different banks.
template <class T, int W>
struct RowsTile {
  static constexpr int kChunks = W / 8;
  alignas(16) T v[kRowsDepth * W];
  __device__ __forceinline__ T* at(int row, int chunk) {
    const int turned = kChunks == 8 ? chunk ^ (row & 7) : chunk ^ (row >> 1 & 3);
    return v + row * W + turned * 8;
  }
  // Rows `first` up to `last` of from[rows, width], columns from `column`; what is not there is 0.
  __device__ __forceinline__ void load(const T* from, int64_t first, int64_t last, int column, int width) {
    PELTON_UNROLL
    for (int i = threadIdx.x; i < kRowsDepth * kChunks; i += kRowsThreads) {
      const int row = i / kChunks, chunk = i % kChunks;
      const bool there = first + row < last && column + chunk * 8 < width;
      copy_16(at(row, chunk), there ? from + (first + row) * width + column + chunk * 8 : from, there);
    }
  }
};

// Block [tile, part] writes its sums to partial[part][M][N]. Warps lie two by two on the tile.
template <class T, int kM, int kN>
__global__ void __launch_bounds__(kRowsThreads)
    rows_kernel(const RowsProduct p, const RowsProductShares share, float* partial) {
  constexpr int kMs = kM / 32, kNs = kN / 16;  // of a warp: tiles of 16 rows, of 8 columns of dw
  __shared__ RowsTile<T, kM> gs[kRowsStages];
  __shared__ RowsTile<T, kN> xs[kRowsStages];
  const T *g = static_cast<const T*>(p.g), *x = static_cast<const T*>(p.x);
  const int tiles_n = (p.n + kN - 1) / kN;
  const int m0 = blockIdx.x / tiles_n * kM, n0 = blockIdx.x % tiles_n * kN;
  const int64_t first = blockIdx.y * share.rows_each;
  const int64_t last = first + share.rows_each < p.rows ? first + share.rows_each : p.rows;
  const int steps = first < last ? static_cast<int>((last - first + kRowsDepth - 1) / kRowsDepth) : 0;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, matrix = lane / 8, in_matrix = lane % 8;
  const int warp_m = warp / 2 * (kM / 2), warp_n = warp % 2 * (kN / 2);
  let_next_start();
  inputs_ready();
  auto load = [&](int step) {
    if (step < steps) {
      const int64_t row = first + static_cast<int64_t>(step) * kRowsDepth;
      gs[step % kRowsStages].load(g, row, last, m0, p.m);
      xs[step % kRowsStages].load(x, row, last, n0, p.n);
    }
    commit_copies();
  };
  for (int s = 0; s < kRowsStages - 1; ++s) load(s);
  float sums[kMs][kNs][4] = {};
  for (int step = 0; step < steps; ++step) {
    wait_copies<kRowsStages - 2>();
    __syncthreads();  // all have it, and are done with the stage that is filled now
    load(step + kRowsStages - 1);
    RowsTile<T, kM>& gt = gs[step % kRowsStages];
    RowsTile<T, kN>& xt = xs[step % kRowsStages];
    PELTON_UNROLL
    for (int k = 0; k < kRowsDepth; k += 16) {
      uint32_t a[kMs][4], b[kNs / 2][4];
      PELTON_UNROLL
      for (int i = 0; i < kMs; ++i)
        load_matrices_transposed(a[i],
                                 gt.at(k + matrix / 2 * 8 + in_matrix, (warp_m + i * 16) / 8 + matrix % 2));
      PELTON_UNROLL
      for (int j = 0; j < kNs / 2; ++j)
        load_matrices_transposed(b[j],
                                 xt.at(k + matrix % 2 * 8 + in_matrix, (warp_n + j * 16) / 8 + matrix / 2));
      PELTON_UNROLL
      for (int i = 0; i < kMs; ++i) {
        PELTON_UNROLL
        for (int j = 0; j < kNs; ++j)
          multiply_add<T>(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
  float* const mine = partial + static_cast<int64_t>(blockIdx.y) * p.m * p.n;
  PELTON_UNROLL
  for (int i = 0; i < kMs; ++i) {
    PELTON_UNROLL
    for (int j = 0; j < kNs; ++j) {
      PELTON_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int m = m0 + warp_m + i * 16 + lane / 4 + e / 2 * 8;
        const int n = n0 + warp_n + j * 8 + lane % 4 * 2 + e % 2;
        if (m < p.m && n < p.n) mine[m * p.n + n] = sums[i][j][e];
      }
    }
  }
}

}  // namespace pelton::backend::cuda

#undef PELTON_UNROLL
