// SPDX-License-Identifier: Apache-2.0
// A thread writes 16 bytes at a time; they are cut out of two aligned loads.
#include "backend/cuda/own/compact_rows.h"

#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    kernel(const T* x, T* y, uint32_t count, uint32_t columns, uint32_t pitch) {
  constexpr uint32_t kUnit = 16 / sizeof(T);
  let_next_start();
  inputs_ready();
  const uint32_t first = (blockIdx.x * kThreads + threadIdx.x) * kUnit;
  if (first >= count) return;
  uint32_t row = first / columns, column = first - row * columns;
  const size_t from = static_cast<size_t>(row) * pitch + column;
  if (column + kUnit <= columns) {
    const size_t behind = from % kUnit;
    const auto* const at = reinterpret_cast<const uint4*>(x + (from - behind));
    const uint4 low = at[0], high = behind > 0 ? at[1] : low;
    const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const uint32_t bytes = static_cast<uint32_t>(behind * sizeof(T)), skip = bytes / 4, bits = bytes % 4 * 8;
    uint32_t out[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t a = skip == 0   ? words[i]
                         : skip == 1 ? words[i + 1]
                         : skip == 2 ? words[i + 2]
                                     : words[i + 3];
      const uint32_t b = skip == 0   ? words[i + 1]
                         : skip == 1 ? words[i + 2]
                         : skip == 2 ? words[i + 3]
                                     : words[i + 4];
      out[i] = __funnelshift_r(a, b, bits);
    }
    *reinterpret_cast<uint4*>(y + first) = make_uint4(out[0], out[1], out[2], out[3]);
    return;
  }
  for (uint32_t i = first; i < count && i < first + kUnit; ++i, ++column) {
    if (column == columns) {
      column = 0;
      ++row;
    }
    y[i] = x[static_cast<size_t>(row) * pitch + column];
  }
}

template <class T>
cudaError_t start(const CompactRows& p, cudaStream_t stream) {
  const int64_t count = p.rows * p.columns, each = kThreads * 16 / static_cast<int64_t>(sizeof(T));
  return launch(&kernel<T>, dim3(static_cast<unsigned>((count + each - 1) / each)), dim3(kThreads), 0, stream,
                static_cast<const T*>(p.x), static_cast<T*>(p.y), static_cast<uint32_t>(count),
                static_cast<uint32_t>(p.columns), static_cast<uint32_t>(p.pitch));
}

}  // namespace

cudaError_t compact_rows(const CompactRows& p, cudaStream_t stream) {
  return p.bytes == 2 ? start<uint16_t>(p, stream) : start<uint32_t>(p, stream);
}

}  // namespace pelton::backend::cuda
