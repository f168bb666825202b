// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cuda/own/launch.cuh"
#include "backend/cuda/own/segment_totals.h"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256, kMost = 256;  // segments of a launch

struct Totals {
  float* to[kMost];
  int first[kMost + 1];
};

// A block a segment: strides of its threads first, then a tree.
__global__ void __launch_bounds__(kThreads) total(const Totals t, const float* __restrict__ partial) {
  __shared__ float sums[kThreads];
  inputs_ready();
  let_next_start();
  const int last = t.first[blockIdx.x + 1];
  float sum = 0;
  for (int i = t.first[blockIdx.x] + threadIdx.x; i < last; i += kThreads) sum += partial[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *t.to[blockIdx.x] = sums[0];
}

}  // namespace

cudaError_t segment_totals(const float* partial, const std::vector<int>& first, const std::vector<float*>& to,
                           cudaStream_t stream) {
  for (size_t begin = 0; begin < to.size(); begin += kMost) {
    const size_t count = std::min<size_t>(kMost, to.size() - begin);
    Totals t = {};
    std::copy_n(to.begin() + static_cast<std::ptrdiff_t>(begin), count, t.to);
    std::copy_n(first.begin() + static_cast<std::ptrdiff_t>(begin), count + 1, t.first);
    const cudaError_t error =
        launch(total, dim3(static_cast<unsigned>(count)), dim3(kThreads), 0, stream, t, partial);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace pelton::backend::cuda
