// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/depthwise.h"

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 128;

// A thread yields kRun neighbouring places of a row for V channels: what it loads of a row serves all of
// them. Blocks: [runs and channels of a row, rows, images].
template <class T, int V, int kWindow, int kStride, int kRun>
__global__ void __launch_bounds__(kThreads, 4) window_kernel(const Depthwise d) {
  const int groups = d.c / V, runs = (d.q + kRun - 1) / kRun;
  const int index = blockIdx.x * kThreads + threadIdx.x, p = blockIdx.y, image = blockIdx.z;
  const int run = index / groups, channel = (index - run * groups) * V, first = run * kRun;
  const bool idle = run >= runs;
  const int top = p * kStride - d.pad_h, left = first * kStride - d.pad_w;
  const T* const x =
      static_cast<const T*>(d.x) + static_cast<int64_t>(image) * d.h * d.w_ * d.c + (idle ? 0 : channel);
  const T* const w = static_cast<const T*>(d.w) + (idle ? 0 : channel);
  float sums[kRun][V] = {};
  if constexpr (kRun == 1) {
    // Few threads: everything is loaded at once, the weights before the kernel in front is done.
    if (!d.fixed_weights) inputs_ready();
    Pack<T, V> taps[kWindow * kWindow], values[kWindow * kWindow];
#pragma unroll
    for (int i = 0; i < kWindow * kWindow; ++i) taps[i] = *reinterpret_cast<const Pack<T, V>*>(w + i * d.c);
    let_next_start();
    inputs_ready();
    if (idle) return;
#pragma unroll
    for (int r = 0; r < kWindow; ++r)
#pragma unroll
      for (int s = 0; s < kWindow; ++s) {
        const int row = top + r, column = left + s;
        const bool inside = static_cast<unsigned>(row) < static_cast<unsigned>(d.h) &&
                            static_cast<unsigned>(column) < static_cast<unsigned>(d.w_);
        Pack<T, V> zero;
#pragma unroll
        for (int e = 0; e < V; ++e) zero.v[e] = from_float<T>(0.0f);
        values[r * kWindow + s] = zero;
        if (inside)
          values[r * kWindow + s] = *reinterpret_cast<const Pack<T, V>*>(x + (row * d.w_ + column) * d.c);
      }
#pragma unroll
    for (int i = 0; i < kWindow * kWindow; ++i)
#pragma unroll
      for (int e = 0; e < V; ++e)
        sums[0][e] = fmaf(to_float(values[i].v[e]), to_float(taps[i].v[e]), sums[0][e]);
  } else {
    let_next_start();
    inputs_ready();
    if (idle) return;
    constexpr int kColumns = (kRun - 1) * kStride + kWindow;
#pragma unroll 1
    for (int r = 0; r < kWindow; ++r) {
      // A whole row is on its way before any of it is used.
      const int at = top + r;
      const bool row_inside = static_cast<unsigned>(at) < static_cast<unsigned>(d.h);
      const T* const line = x + (at * d.w_ + left) * d.c;
      Pack<T, V> taps[kWindow], values[kColumns];
#pragma unroll
      for (int s = 0; s < kWindow; ++s)
        taps[s] = *reinterpret_cast<const Pack<T, V>*>(w + (r * kWindow + s) * d.c);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
#pragma unroll
        for (int e = 0; e < V; ++e) values[j].v[e] = from_float<T>(0.0f);
        if (row_inside && static_cast<unsigned>(left + j) < static_cast<unsigned>(d.w_))
          values[j] = *reinterpret_cast<const Pack<T, V>*>(line + j * d.c);
      }
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int t = 0; t < kRun; ++t) {
          const int s = j - t * kStride;
          if (s < 0 || s >= kWindow) continue;
#pragma unroll
          for (int e = 0; e < V; ++e)
            sums[t][e] = fmaf(to_float(values[j].v[e]), to_float(taps[s].v[e]), sums[t][e]);
        }
    }
  }
#pragma unroll
  for (int t = 0; t < kRun; ++t) {
    if (first + t >= d.q) break;
    const int64_t offset = ((static_cast<int64_t>(image) * d.p + p) * d.q + first + t) * d.c + channel;
    apply_epilogue<V>(d.epilogue, sums[t], offset, image, channel, d.c);
    store_as<V>(d.y_type, d.y, offset, sums[t]);
  }
}

// One result a thread.
template <class T>
__global__ void __launch_bounds__(kThreads) any_kernel(const Depthwise d) {
  let_next_start();
  inputs_ready();
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= static_cast<int64_t>(d.n) * d.p * d.q * d.c) return;
  const int channel = static_cast<int>(index % d.c);
  const int64_t rest = index / d.c;
  const int q = static_cast<int>(rest % d.q);
  const int64_t row = rest / d.q;
  const int image = static_cast<int>(row / d.p), p = static_cast<int>(row % d.p);
  const T* const x = static_cast<const T*>(d.x) + static_cast<int64_t>(image) * d.h * d.w_ * d.c + channel;
  const T* const w = static_cast<const T*>(d.w) + channel;
  float sum[1] = {0};
  for (int r = 0; r < d.r; ++r) {
    const int at = p * d.stride_h - d.pad_h + r * d.dilation_h;
    if (static_cast<unsigned>(at) >= static_cast<unsigned>(d.h)) continue;
    for (int s = 0; s < d.s; ++s) {
      const int column = q * d.stride_w - d.pad_w + s * d.dilation_w;
      if (static_cast<unsigned>(column) >= static_cast<unsigned>(d.w_)) continue;
      sum[0] = fmaf(to_float(x[(static_cast<int64_t>(at) * d.w_ + column) * d.c]),
                    to_float(w[(r * d.s + s) * d.c]), sum[0]);
    }
  }
  apply_epilogue<1>(d.epilogue, sum, index, image, channel, d.c);
  store_as<1>(d.y_type, d.y, index, sum);
}

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

template <class T, int V, int kWindow, int kStride, int kRun>
cudaError_t start_runs(const Depthwise& d, cudaStream_t stream) {
  const int64_t row = static_cast<int64_t>(d.c / V) * ((d.q + kRun - 1) / kRun);
  return launch(&window_kernel<T, V, kWindow, kStride, kRun>, dim3(blocks_for(row), d.p, d.n), dim3(kThreads),
                0, stream, d);
}
template <class T, int V, int kWindow, int kStride>
cudaError_t start_window(const Depthwise& d, int multiprocessors, cudaStream_t stream) {
  // Runs of four where that still fills the GPU, else as many threads as there are pairs of results.
  const int64_t fours = static_cast<int64_t>(d.n) * d.p * ((d.q + 3) / 4) * (d.c / V);
  if (fours >= static_cast<int64_t>(multiprocessors) * 1024)
    return start_runs<T, V, kWindow, kStride, 4>(d, stream);
  return start_runs<T, 2, kWindow, kStride, 1>(d, stream);
}
template <class T, int V>
cudaError_t start(const Depthwise& d, int multiprocessors, cudaStream_t stream) {
  const bool square = d.r == d.s && d.stride_h == d.stride_w && d.dilation_h == 1 && d.dilation_w == 1;
  // Offsets inside an image are 32-bit numbers; rows and images are dims of the grid.
  const bool small =
      static_cast<int64_t>(d.h + d.r) * (d.w_ + d.s) * d.c < (int64_t{1} << 31) && d.p < 65536 && d.n < 65536;
  if (square && small && d.c % V == 0) {
    if (d.r == 3 && d.stride_h == 1) return start_window<T, V, 3, 1>(d, multiprocessors, stream);
    if (d.r == 3 && d.stride_h == 2) return start_window<T, V, 3, 2>(d, multiprocessors, stream);
    if (d.r == 5 && d.stride_h == 1) return start_window<T, V, 5, 1>(d, multiprocessors, stream);
    if (d.r == 5 && d.stride_h == 2) return start_window<T, V, 5, 2>(d, multiprocessors, stream);
  }
  return launch(&any_kernel<T>, dim3(blocks_for(static_cast<int64_t>(d.n) * d.p * d.q * d.c)), dim3(kThreads),
                0, stream, d);
}

}  // namespace

cudaError_t depthwise(const Depthwise& d, int multiprocessors, cudaStream_t stream) {
  if (d.type == Elem::f16) return start<__half, 8>(d, multiprocessors, stream);
  if (d.type == Elem::bf16) return start<__nv_bfloat16, 8>(d, multiprocessors, stream);
  return start<float, 4>(d, multiprocessors, stream);
}

}  // namespace pelton::backend::cuda
