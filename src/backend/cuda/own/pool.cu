// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/pool.h"

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256;

// Flat index over [N,C,S...]; column-major counts the first spatial axis fastest.
__device__ int64_t flat_index(const Pool& g, int64_t plane, int a, int b, int c) {
  const int64_t base = plane * g.in[0] * g.in[1] * g.in[2];
  if (g.row_major) return base + (static_cast<int64_t>(a) * g.in[1] + b) * g.in[2] + c;
  return base + a + static_cast<int64_t>(g.in[0]) * (b + static_cast<int64_t>(g.in[1]) * c);
}

// A thread yields V neighbouring channels (channels last) or one result (plain, V = 1).
template <class T, int V, class Index>
__global__ void __launch_bounds__(kThreads) pool_kernel(const Pool g) {
  let_next_start();
  inputs_ready();
  // Index is 32 bits wide where that is enough: divisions of 64 bits take longer than a small window.
  const Index thread = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  const Index groups = g.channels_last ? g.c / V : 1;
  const Index places = static_cast<Index>(g.out[0]) * g.out[1] * g.out[2];
  const Index count = static_cast<Index>(g.n) * (g.c / V) * places;
  if (thread >= count) return;
  const Index rest = thread / groups;
  const int channel = g.channels_last ? static_cast<int>(thread - rest * groups) * V : 0;
  const Index plane_index = rest / places;  // an image, or an image's channel
  const auto place = static_cast<unsigned>(rest - plane_index * places);
  const unsigned line = place / g.out[2];
  const int oc = static_cast<int>(place - line * g.out[2]);
  const int ob = static_cast<int>(line % g.out[1]), oa = static_cast<int>(line / g.out[1]);
  const auto plane = static_cast<int64_t>(plane_index);
  const int64_t step = g.channels_last ? g.c : 1;
  const T* const x = static_cast<const T*>(g.x) + plane * g.in[0] * g.in[1] * g.in[2] * step + channel;
  float best[V];
  int tap = -1, best_tap[V];  // of the window, in the order of the loops
  int inside = 0, padded = 0;
#pragma unroll
  for (int e = 0; e < V; ++e) {
    best[e] = g.max ? -INFINITY : 0.0f;
    best_tap[e] = -1;
  }
  for (int ka = 0; ka < g.kernel[0]; ++ka) {
    const int a = oa * g.stride[0] - g.low[0] + ka * g.dilation[0];
    for (int kb = 0; kb < g.kernel[1]; ++kb) {
      const int b = ob * g.stride[1] - g.low[1] + kb * g.dilation[1];
      for (int kc = 0; kc < g.kernel[2]; ++kc) {
        const int c = oc * g.stride[2] - g.low[2] + kc * g.dilation[2];
        ++tap;
        padded += a < g.in[0] + g.high[0] && b < g.in[1] + g.high[1] && c < g.in[2] + g.high[2];
        if (static_cast<unsigned>(a) >= static_cast<unsigned>(g.in[0]) ||
            static_cast<unsigned>(b) >= static_cast<unsigned>(g.in[1]) ||
            static_cast<unsigned>(c) >= static_cast<unsigned>(g.in[2]))
          continue;
        ++inside;
        float value[V];
        load_v<V>(x + ((static_cast<int64_t>(a) * g.in[1] + b) * g.in[2] + c) * step, value);
#pragma unroll
        for (int e = 0; e < V; ++e) {
          if (!g.max) {
            best[e] += value[e];
          } else if (best_tap[e] < 0 || value[e] > best[e] || (value[e] != value[e] && best[e] == best[e])) {
            best[e] = value[e];
            best_tap[e] = tap;
          }
        }
      }
    }
  }
  const int divisor = g.count_padding ? padded : inside;
#pragma unroll
  for (int e = 0; e < V; ++e)
    if (!g.max) best[e] = best[e] / static_cast<float>(divisor);  // 0 / 0 is NaN, as it should be
  const int64_t first = static_cast<int64_t>(thread) * V;
  store_v<V>(static_cast<T*>(g.y) + first, best);
  if (!g.index) return;
#pragma unroll
  for (int e = 0; e < V; ++e) {
    const int at = best_tap[e];
    const int ka = at / (g.kernel[1] * g.kernel[2]), kb = at / g.kernel[2] % g.kernel[1],
              kc = at % g.kernel[2];
    g.index[first + e] = at < 0 ? -1
                                : flat_index(g, g.channels_last ? plane * g.c + channel + e : plane,
                                             oa * g.stride[0] - g.low[0] + ka * g.dilation[0],
                                             ob * g.stride[1] - g.low[1] + kb * g.dilation[1],
                                             oc * g.stride[2] - g.low[2] + kc * g.dilation[2]);
  }
}

// Square windows over rows and columns of channels-last data: all of a window is on its way at once. Blocks:
// [columns and channels, rows, images].
template <class T, int V, int kWindow>
__global__ void __launch_bounds__(kThreads) window_kernel(const Pool g) {
  let_next_start();
  inputs_ready();
  const unsigned groups = g.c / V, index = blockIdx.x * kThreads + threadIdx.x;
  const int q = static_cast<int>(index / groups), p = blockIdx.y, image = blockIdx.z;
  const int channel = static_cast<int>(index % groups) * V;
  if (q >= g.out[2]) return;
  const int top = p * g.stride[1] - g.low[1], left = q * g.stride[2] - g.low[2];
  const T* const x =
      static_cast<const T*>(g.x) + static_cast<int64_t>(image) * g.in[1] * g.in[2] * g.c + channel;
  Pack<T, V> values[kWindow * kWindow];
  int inside = 0, padded = 0;
#pragma unroll
  for (int i = 0; i < kWindow * kWindow; ++i) {
    const int row = top + i / kWindow, column = left + i % kWindow;
    const bool there = static_cast<unsigned>(row) < static_cast<unsigned>(g.in[1]) &&
                       static_cast<unsigned>(column) < static_cast<unsigned>(g.in[2]);
#pragma unroll
    for (int e = 0; e < V; ++e) values[i].v[e] = from_float<T>(g.max ? -INFINITY : 0.0f);
    if (there)
      values[i] =
          *reinterpret_cast<const Pack<T, V>*>(x + static_cast<int64_t>(row * g.in[2] + column) * g.c);
    inside += there;
    padded += row < g.in[1] + g.high[1] && column < g.in[2] + g.high[2];
  }
  float result[V];
#pragma unroll
  for (int e = 0; e < V; ++e) result[e] = to_float(values[0].v[e]);
#pragma unroll
  for (int i = 1; i < kWindow * kWindow; ++i)
#pragma unroll
    for (int e = 0; e < V; ++e) {
      const float v = to_float(values[i].v[e]);
      // NaN wins.
      result[e] = !g.max ? result[e] + v : v > result[e] || v != v ? v : result[e];
    }
  if (!g.max) {
    const float divisor = static_cast<float>(g.count_padding ? padded : inside);
#pragma unroll
    for (int e = 0; e < V; ++e) result[e] /= divisor;
  }
  store_v<V>(
      static_cast<T*>(g.y) + ((static_cast<int64_t>(image) * g.out[1] + p) * g.out[2] + q) * g.c + channel,
      result);
}

template <class T, int V>
cudaError_t start_pool(const Pool& g, cudaStream_t stream) {
  const int64_t count = static_cast<int64_t>(g.n) * g.c * g.out[0] * g.out[1] * g.out[2] / V;
  const dim3 blocks(static_cast<unsigned>((count + kThreads - 1) / kThreads));
  if (count < (int64_t{1} << 31))
    return launch(&pool_kernel<T, V, unsigned>, blocks, dim3(kThreads), 0, stream, g);
  return launch(&pool_kernel<T, V, uint64_t>, blocks, dim3(kThreads), 0, stream, g);
}
template <class T, int V, int kWindow>
cudaError_t start_window(const Pool& g, cudaStream_t stream) {
  const unsigned row = static_cast<unsigned>(g.out[2]) * (g.c / V);
  return launch(&window_kernel<T, V, kWindow>, dim3((row + kThreads - 1) / kThreads, g.out[1], g.n),
                dim3(kThreads), 0, stream, g);
}
template <class T, int V>
cudaError_t start_any(const Pool& g, cudaStream_t stream) {
  const bool square = g.channels_last && !g.index && g.c % V == 0 && g.in[0] == 1 && g.out[0] == 1 &&
                      g.kernel[0] == 1 && g.low[0] == 0 && g.kernel[1] == g.kernel[2] && g.dilation[1] == 1 &&
                      g.dilation[2] == 1 && g.out[1] < 65536 && g.n < 65536 &&
                      static_cast<int64_t>(g.in[1]) * g.in[2] < (int64_t{1} << 30);
  if (square && g.kernel[1] == 3) return start_window<T, V, 3>(g, stream);
  if (square && g.kernel[1] == 2) return start_window<T, V, 2>(g, stream);
  return g.channels_last && g.c % V == 0 ? start_pool<T, V>(g, stream) : start_pool<T, 1>(g, stream);
}

constexpr int kColumns = 8;  // groups of V channels a block takes

// Blocks: tiles of channels of one image after another (an axis of the grid other than x is short).
template <class T, int V>
__global__ void __launch_bounds__(kThreads) mean_kernel(const ChannelMean g, unsigned tiles) {
  constexpr int kRows = kThreads / kColumns;
  __shared__ float sums[kRows][kColumns * V + 1];
  let_next_start();
  inputs_ready();
  const int column = threadIdx.x % kColumns, row = threadIdx.x / kColumns;
  const unsigned image = blockIdx.x / tiles, tile = blockIdx.x - image * tiles;
  const int channel = static_cast<int>(tile * kColumns + column) * V;
  const T* const x = static_cast<const T*>(g.x) + static_cast<int64_t>(image) * g.places * g.c + channel;
  float sum[V] = {};
  if (channel < g.c) {
#pragma unroll 4
    for (int p = row; p < g.places; p += kRows) {
      float value[V];
      load_v<V>(x + static_cast<int64_t>(p) * g.c, value);
#pragma unroll
      for (int e = 0; e < V; ++e) sum[e] += value[e];
    }
  }
#pragma unroll
  for (int e = 0; e < V; ++e) sums[row][column * V + e] = sum[e];
  __syncthreads();
  if (threadIdx.x >= kColumns * V) return;
  const int own = static_cast<int>(tile * kColumns * V + threadIdx.x);
  if (own >= g.c) return;
  float total[1] = {0};
#pragma unroll 8
  for (int r = 0; r < kRows; ++r) total[0] += sums[r][threadIdx.x];
  if (!g.sum) total[0] /= static_cast<float>(g.places);
  store_v<1>(static_cast<T*>(g.y) + static_cast<int64_t>(image) * g.c + own, total);
}
template <class T, int V>
cudaError_t start_mean(const ChannelMean& g, cudaStream_t stream) {
  const int per_block = kColumns * V;
  const auto tiles = static_cast<unsigned>((g.c + per_block - 1) / per_block);
  return launch(&mean_kernel<T, V>, dim3(tiles * static_cast<unsigned>(g.n)), dim3(kThreads), 0, stream, g,
                tiles);
}
template <class T, int V>
cudaError_t start_any_mean(const ChannelMean& g, cudaStream_t stream) {
  return g.c % V == 0 ? start_mean<T, V>(g, stream) : start_mean<T, 1>(g, stream);
}

}  // namespace

cudaError_t pool(const Pool& g, cudaStream_t stream) {
  if (g.type == Elem::f16) return start_any<__half, 8>(g, stream);
  if (g.type == Elem::bf16) return start_any<__nv_bfloat16, 8>(g, stream);
  return start_any<float, 4>(g, stream);
}
cudaError_t channel_mean(const ChannelMean& g, cudaStream_t stream) {
  if (g.type == Elem::f16) return start_any_mean<__half, 8>(g, stream);
  if (g.type == Elem::bf16) return start_any_mean<__nv_bfloat16, 8>(g, stream);
  return start_any_mean<float, 4>(g, stream);
}

}  // namespace pelton::backend::cuda
