// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
#include "backend/cuda/own/mma.cuh"
// After these.
#include "backend/cuda/own/rows_product.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kFinishLanes = 32, kFinishTeams = 16;

// A block 32 elements of dw: the sums of all parts, in order.
__global__ void __launch_bounds__(kFinishLanes* kFinishTeams)
    finish_kernel(const RowsProduct p, const float* partial, int parts) {
  __shared__ float shared[kFinishTeams][kFinishLanes];
  let_next_start();
  inputs_ready();
  const int lane = threadIdx.x % kFinishLanes, team = threadIdx.x / kFinishLanes;
  const int64_t count = static_cast<int64_t>(p.m) * p.n;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kFinishLanes + lane;
  float sum = 0;
  if (at < count)
#pragma unroll 8
    for (int part = team; part < parts; part += kFinishTeams) sum += partial[part * count + at];
  shared[team][lane] = sum;
  __syncthreads();
  if (team != 0 || at >= count) return;
  for (int t = 1; t < kFinishTeams; ++t) sum += shared[t][lane];
  const float one[1] = {sum};
  store_as<1>(p.result_type, p.dw, at, one);
}

template <class T, int kM, int kN>
cudaError_t start(const RowsProduct& p, const RowsProductShares& s, cudaStream_t stream) {
  return launch(&rows_kernel<T, kM, kN>, dim3(s.tiles, s.parts), dim3(kRowsThreads), 0, stream, p, s,
                p.scratch);
}
template <class T>
cudaError_t start(const RowsProduct& p, const RowsProductShares& s, cudaStream_t stream) {
  if (s.tile_m == 32) return s.tile_n == 32 ? start<T, 32, 32>(p, s, stream) : start<T, 32, 64>(p, s, stream);
  return s.tile_n == 32 ? start<T, 64, 32>(p, s, stream) : start<T, 64, 64>(p, s, stream);
}

}  // namespace

RowsProductShares rows_product_shares(const RowsProduct& p) {
  constexpr int kBlocksEach = 4;               // of a multiprocessor
  constexpr int64_t kFewest = 4 * kRowsDepth;  // rows that are worth a block
  RowsProductShares s;
  s.tile_m = p.m <= 32 ? 32 : 64;
  s.tile_n = p.n <= 32 ? 32 : 64;
  s.tiles = (p.m + s.tile_m - 1) / s.tile_m * ((p.n + s.tile_n - 1) / s.tile_n);
  const int64_t most = std::max(1, p.multiprocessors * kBlocksEach / s.tiles);
  const int64_t parts = std::clamp<int64_t>(p.rows / kFewest, 1, most);
  const int64_t steps = (p.rows + kRowsDepth - 1) / kRowsDepth;
  s.rows_each = std::max<int64_t>(1, (steps + parts - 1) / parts) * kRowsDepth;
  s.parts = static_cast<int>(std::max<int64_t>(1, (p.rows + s.rows_each - 1) / s.rows_each));
  return s;
}
int64_t rows_product_scratch_bytes(const RowsProduct& p) {
  return static_cast<int64_t>(rows_product_shares(p).parts) * p.m * p.n * 4;
}

cudaError_t rows_product(const RowsProduct& p, cudaStream_t stream) {
  if (p.m == 0 || p.n == 0) return cudaSuccess;
  const RowsProductShares s = rows_product_shares(p);
  const cudaError_t status =
      p.type == Elem::f16 ? start<__half>(p, s, stream) : start<__nv_bfloat16>(p, s, stream);
  if (status != cudaSuccess) return status;
  const int64_t count = static_cast<int64_t>(p.m) * p.n;
  return launch(&finish_kernel, dim3(static_cast<unsigned>((count + kFinishLanes - 1) / kFinishLanes)),
                dim3(kFinishLanes * kFinishTeams), 0, stream, p, static_cast<const float*>(p.scratch),
                s.parts);
}

}  // namespace pelton::backend::cuda
