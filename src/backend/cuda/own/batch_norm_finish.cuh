// SPDX-License-Identifier: Apache-2.0
// The second of the three launches of a batch norm: from the sums of all parts to what the last one needs.
// Included after device.cuh and launch.cuh or what stands in for them.
#pragma once

#include "backend/cuda/own/batch_norm.cuh"

namespace pelton::backend::cuda {

// What the last pass needs of each channel, behind the partial sums: [3][C].
__device__ __forceinline__ float* table_of(const BatchNorm& d, int parts) {
  return reinterpret_cast<float*>(d.scratch + static_cast<int64_t>(parts) * 2 * d.c);
}

// A block of the finishing kernel: the sums of all parts are added up by teams of a thread a channel, what
// else is read of a channel is on its way meanwhile in a warp of its own, which then finishes it.
constexpr int kFinishChannels = 16, kFinishTeams = 62, kFinishSums = 8;
constexpr int kFinishThreads = kFinishTeams * kFinishChannels + 32;
template <class T, bool kBackward>
__global__ void __launch_bounds__(kFinishThreads) finish_kernel(const BatchNorm d, int parts) {
  constexpr int kSums = kFinishTeams * kFinishChannels, kFewer = kFinishSums * kFinishChannels;
  __shared__ double shared[2][kSums], fewer[2][kFewer];
  let_next_start();
  inputs_ready();
  const int lane = threadIdx.x % kFinishChannels, team = threadIdx.x / kFinishChannels,
            c = blockIdx.x * kFinishChannels + lane;
  const bool sums = team < kFinishTeams, finishes = team == kFinishTeams && c < d.c;
  NormChannel known;
  float shift[1] = {0};
  if (finishes) {
    known = norm_channel<kBackward>(d, c);
    if (!kBackward) sample<T, 1>(d, c, shift);
  }
  if (sums) {
    double a = 0, b = 0;
    if (c < d.c)
#pragma unroll 8
      for (int p = team; p < parts; p += kFinishTeams) {
        a += d.scratch[static_cast<int64_t>(p) * 2 * d.c + c];
        b += d.scratch[(static_cast<int64_t>(p) * 2 + 1) * d.c + c];
      }
    shared[0][threadIdx.x] = a;
    shared[1][threadIdx.x] = b;
  }
  __syncthreads();
  if (threadIdx.x < 2 * kFewer) {
    const int which = threadIdx.x / kFewer, at = threadIdx.x % kFewer;
    double sum = 0;
#pragma unroll
    for (int i = 0; i < kSums; i += kFewer)
      if (i + at < kSums) sum += shared[which][i + at];
    fewer[which][at] = sum;
  }
  __syncthreads();
  if (!finishes) return;
  double a = 0, b = 0;
#pragma unroll
  for (int i = lane; i < kFewer; i += kFinishChannels) {
    a += fewer[0][i];
    b += fewer[1][i];
  }
  const NormTable of_channel = finish_channel<kBackward>(d, c, known, a, b, shift[0], true);
  float* const table = table_of(d, parts);
#pragma unroll
  for (int i = 0; i < 3; ++i) table[i * d.c + c] = of_channel.v[i];
}

}  // namespace pelton::backend::cuda
