// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/depthwise_backward.h"

#include <algorithm>

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 128;

// A thread yields kRun neighbouring places of a row of dx for V channels. Runs start where the window of a
// place of g starts, so that which tap meets which place is known when the kernel is compiled. Blocks: [runs
// and channels of a row, rows, images].
template <class T, int V, int kWindow, int kStride, int kRun>
__global__ void __launch_bounds__(kThreads) data_kernel(const DepthwiseBackward d) {
  static_assert(kRun % kStride == 0);
  const int shift = d.pad_w % kStride;  // the first run begins this far in front of the row
  const int groups = d.c / V, runs = (d.w + shift + kRun - 1) / kRun;
  const int index = blockIdx.x * kThreads + threadIdx.x, row = blockIdx.y, image = blockIdx.z;
  const int run = index / groups, channel = (index - run * groups) * V, first = run * kRun - shift;
  let_next_start();
  inputs_ready();
  if (run >= runs) return;
  const T* const g = static_cast<const T*>(d.g) + static_cast<int64_t>(image) * d.p * d.q * d.c + channel;
  const T* const w = static_cast<const T*>(d.other) + channel;
  const int at = (first + d.pad_w) / kStride;  // the place of g whose window starts at `first`
  constexpr int kBefore = (kWindow - 1) / kStride, kPlaces = kBefore + kRun / kStride;
  float sums[kRun][V] = {};
#pragma unroll 1
  for (int r = 0; r < kWindow; ++r) {
    const int from = row + d.pad_h - r;
    if (kStride > 1 && from % kStride != 0) continue;
    const int p = from / kStride;
    if (from < 0 || p >= d.p) continue;
    const T* const line = g + static_cast<int64_t>(p) * d.q * d.c;
    Pack<T, V> taps[kWindow], values[kPlaces];
#pragma unroll
    for (int s = 0; s < kWindow; ++s)
      taps[s] = *reinterpret_cast<const Pack<T, V>*>(w + (r * kWindow + s) * d.c);
#pragma unroll
    for (int j = 0; j < kPlaces; ++j) {
      const int q = at - kBefore + j;
#pragma unroll
      for (int e = 0; e < V; ++e) values[j].v[e] = from_float<T>(0.0f);
      if (static_cast<unsigned>(q) < static_cast<unsigned>(d.q))
        values[j] = *reinterpret_cast<const Pack<T, V>*>(line + q * d.c);
    }
#pragma unroll
    for (int t = 0; t < kRun; ++t)
#pragma unroll
      for (int s = 0; s < kWindow; ++s) {
        if ((t - s) % kStride != 0) continue;
        const int j = (t - s) / kStride + kBefore;
        if (j < 0 || j >= kPlaces) continue;
#pragma unroll
        for (int e = 0; e < V; ++e)
          sums[t][e] = fmaf(to_float(values[j].v[e]), to_float(taps[s].v[e]), sums[t][e]);
      }
  }
#pragma unroll
  for (int t = 0; t < kRun; ++t) {
    if (first + t < 0 || first + t >= d.w) continue;
    const int64_t offset = ((static_cast<int64_t>(image) * d.h + row) * d.w + first + t) * d.c + channel;
    apply_epilogue<V>(d.epilogue, sums[t], offset, image, channel, d.c);
    store_as<V>(d.result_type, d.result, offset, sums[t]);
  }
}

// One element of dx a thread.
template <class T>
__global__ void __launch_bounds__(kThreads) any_data_kernel(const DepthwiseBackward d) {
  let_next_start();
  inputs_ready();
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= static_cast<int64_t>(d.n) * d.h * d.w * d.c) return;
  const int channel = static_cast<int>(index % d.c);
  const int64_t rest = index / d.c, line = rest / d.w;
  const int column = static_cast<int>(rest % d.w), row = static_cast<int>(line % d.h);
  const int image = static_cast<int>(line / d.h);
  const T* const g = static_cast<const T*>(d.g) + static_cast<int64_t>(image) * d.p * d.q * d.c + channel;
  const T* const w = static_cast<const T*>(d.other) + channel;
  float sum[1] = {0};
  for (int r = 0; r < d.r; ++r) {
    const int from = row + d.pad_h - r * d.dilation_h, p = from / d.stride_h;
    if (from < 0 || from % d.stride_h != 0 || p >= d.p) continue;
    for (int s = 0; s < d.s; ++s) {
      const int start = column + d.pad_w - s * d.dilation_w, q = start / d.stride_w;
      if (start < 0 || start % d.stride_w != 0 || q >= d.q) continue;
      sum[0] = fmaf(to_float(g[(static_cast<int64_t>(p) * d.q + q) * d.c]), to_float(w[(r * d.s + s) * d.c]),
                    sum[0]);
    }
  }
  apply_epilogue<1>(d.epilogue, sum, index, image, channel, d.c);
  store_as<1>(d.result_type, d.result, index, sum);
}

// How the places of g are shared out: a thread takes V channels of a stretch of one row at a time, the
// threads of a block `lanes` groups of channels and kThreads / lanes stretches; blocks [of channels, of
// work].
struct Shares {
  int lanes = 1, stretch = 1, stretches = 1, tiles = 1, blocks = 1;
  int64_t items = 0;
};
Shares shares_of(const DepthwiseBackward& d, int v, int multiprocessors) {
  Shares s;
  const int groups = d.c / v;
  s.lanes = std::min(groups, kThreads);
  s.tiles = (groups + s.lanes - 1) / s.lanes;
  s.stretch = std::min(d.q, 28);
  s.stretches = (d.q + s.stretch - 1) / s.stretch;
  s.items = static_cast<int64_t>(d.n) * d.p * s.stretches;
  // Each block leaves a set of sums behind: worth a few stretches at least.
  const int64_t each = int64_t{4} * (kThreads / s.lanes), most = std::max(1, multiprocessors * 6 / s.tiles);
  s.blocks = static_cast<int>(std::clamp<int64_t>((s.items + each - 1) / each, 1, most));
  return s;
}

// Each block writes its sums to partial[block][tap][C].
template <class T, int V, int kWindow, int kStride>
__global__ void __launch_bounds__(kThreads)
    weights_kernel(const DepthwiseBackward d, const Shares share, float* partial) {
  constexpr int kTaps = kWindow * kWindow;
  __shared__ float shared[kThreads * V];
  const int lane = threadIdx.x % share.lanes, team = threadIdx.x / share.lanes,
            teams = kThreads / share.lanes;
  const int group = blockIdx.x * share.lanes + lane, channel = group * V;
  const bool idle = channel >= d.c || team >= teams;
  let_next_start();
  inputs_ready();
  float sums[kTaps][V] = {};
  const T* const gs = static_cast<const T*>(d.g) + (idle ? 0 : channel);
  const T* const xs = static_cast<const T*>(d.other) + (idle ? 0 : channel);
  Pack<T, V> zero;
#pragma unroll
  for (int e = 0; e < V; ++e) zero.v[e] = from_float<T>(0.0f);
  for (int64_t item = static_cast<int64_t>(blockIdx.y) * teams + team; !idle && item < share.items;
       item += static_cast<int64_t>(gridDim.y) * teams) {
    const int64_t line = item / share.stretches;
    const int first = static_cast<int>(item % share.stretches) * share.stretch;
    const int last = min(first + share.stretch, d.q);
    const int64_t image = line / d.p;
    const int p = static_cast<int>(line % d.p), top = p * kStride - d.pad_h;
    const T* const g = gs + line * d.q * d.c;
    const T* const x = xs + image * d.h * d.w * d.c;
    // The window of x around the present place; columns move on with it.
    Pack<T, V> window[kWindow][kWindow];
    const T* rows[kWindow];
#pragma unroll
    for (int r = 0; r < kWindow; ++r) {
      const int row = top + r;
      const bool inside = static_cast<unsigned>(row) < static_cast<unsigned>(d.h);
      rows[r] = inside ? x + static_cast<int64_t>(row) * d.w * d.c : nullptr;
    }
    auto column = [&](int r, int at) {
      if (rows[r] && static_cast<unsigned>(at) < static_cast<unsigned>(d.w))
        return *reinterpret_cast<const Pack<T, V>*>(rows[r] + at * d.c);
      return zero;
    };
    const int left = first * kStride - d.pad_w;
#pragma unroll
    for (int r = 0; r < kWindow; ++r)
#pragma unroll
      for (int s = 0; s + kStride < kWindow; ++s) window[r][s + kStride] = column(r, left + s);
    // What a place adds to the window is on its way while the place before is used.
    Pack<T, V> next[kWindow][kStride], next_g;
    auto fetch = [&](int q) {
#pragma unroll
      for (int r = 0; r < kWindow; ++r)
#pragma unroll
        for (int s = 0; s < kStride; ++s)
          next[r][s] = column(r, q * kStride - d.pad_w + kWindow - kStride + s);
      next_g = *reinterpret_cast<const Pack<T, V>*>(g + q * d.c);
    };
    fetch(first);
#pragma unroll 1
    for (int q = first; q < last; ++q) {
#pragma unroll
      for (int r = 0; r < kWindow; ++r) {
#pragma unroll
        for (int s = 0; s + kStride < kWindow; ++s) window[r][s] = window[r][s + kStride];
#pragma unroll
        for (int s = 0; s < kStride; ++s) window[r][kWindow - kStride + s] = next[r][s];
      }
      const Pack<T, V> v = next_g;
      if (q + 1 < last) fetch(q + 1);
#pragma unroll
      for (int r = 0; r < kWindow; ++r)
#pragma unroll
        for (int s = 0; s < kWindow; ++s)
#pragma unroll
          for (int e = 0; e < V; ++e)
            sums[r * kWindow + s][e] =
                fmaf(to_float(v.v[e]), to_float(window[r][s].v[e]), sums[r * kWindow + s][e]);
    }
  }
  // The teams of the block, in order.
#pragma unroll 1
  for (int tap = 0; tap < kTaps; ++tap) {
#pragma unroll
    for (int t = 0; t < kTaps; ++t)
      if (t == tap)
#pragma unroll
        for (int e = 0; e < V; ++e) shared[threadIdx.x * V + e] = sums[t][e];
    __syncthreads();
    for (int i = threadIdx.x; i < share.lanes * V; i += kThreads) {
      const int c = blockIdx.x * share.lanes * V + i;
      float sum = 0;
      for (int t = 0; t < teams; ++t) sum += shared[t * share.lanes * V + i];
      if (c < d.c) partial[(static_cast<int64_t>(blockIdx.y) * kTaps + tap) * d.c + c] = sum;
    }
    __syncthreads();
  }
}

// A block a tap and 32 channels: dw[c][tap] = sum over blocks of partial[block][tap][c]. There are hundreds
// of blocks: what a team adds up is a few reads one after the other, many at once.
constexpr int kFinishTeams = 16;
__global__ void __launch_bounds__(32 * kFinishTeams)
    finish_kernel(const DepthwiseBackward d, const float* partial, int blocks) {
  __shared__ float shared[32 * kFinishTeams];
  let_next_start();
  inputs_ready();
  const int c = blockIdx.x * 32 + threadIdx.x % 32, tap = blockIdx.y, part = threadIdx.x / 32;
  const int taps = d.r * d.s;
  float sum = 0;
  if (c < d.c)
#pragma unroll 8
    for (int b = part; b < blocks; b += kFinishTeams)
      sum += partial[(static_cast<int64_t>(b) * taps + tap) * d.c + c];
  shared[threadIdx.x] = sum;
  __syncthreads();
  if (part != 0 || c >= d.c) return;
  for (int i = 1; i < kFinishTeams; ++i) sum += shared[i * 32 + threadIdx.x];
  const float one[1] = {sum};
  store_as<1>(d.result_type, d.result, static_cast<int64_t>(c) * taps + tap, one);
}

// A block an element of dw.
template <class T>
__global__ void __launch_bounds__(kThreads) any_weights_kernel(const DepthwiseBackward d) {
  __shared__ float shared[kThreads];
  let_next_start();
  inputs_ready();
  const int taps = d.r * d.s, c = blockIdx.x / taps, tap = blockIdx.x % taps, r = tap / d.s, s = tap % d.s;
  const T* const g = static_cast<const T*>(d.g) + c;
  const T* const x = static_cast<const T*>(d.other) + c;
  float sum = 0;
  const int64_t places = static_cast<int64_t>(d.n) * d.p * d.q;
  for (int64_t i = threadIdx.x; i < places; i += kThreads) {
    const int64_t line = i / d.q, image = line / d.p;
    const int row = static_cast<int>(line % d.p) * d.stride_h - d.pad_h + r * d.dilation_h;
    const int column = static_cast<int>(i % d.q) * d.stride_w - d.pad_w + s * d.dilation_w;
    if (static_cast<unsigned>(row) < static_cast<unsigned>(d.h) &&
        static_cast<unsigned>(column) < static_cast<unsigned>(d.w))
      sum = fmaf(to_float(g[i * d.c]), to_float(x[((image * d.h + row) * d.w + column) * d.c]), sum);
  }
  shared[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) store_as<1>(d.result_type, d.result, blockIdx.x, {shared[0]});
}

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

template <class T, int V, int kWindow, int kStride>
cudaError_t start_data(const DepthwiseBackward& d, cudaStream_t stream) {
  constexpr int kRun = 4;
  const int64_t row = static_cast<int64_t>(d.c / V) * ((d.w + d.pad_w % kStride + kRun - 1) / kRun);
  return launch(&data_kernel<T, V, kWindow, kStride, kRun>, dim3(blocks_for(row), d.h, d.n), dim3(kThreads),
                0, stream, d);
}
template <class T, int V>
cudaError_t start_data(const DepthwiseBackward& d, cudaStream_t stream) {
  if (depthwise_has_window(d, V)) {
    if (d.r == 3 && d.stride_h == 1) return start_data<T, V, 3, 1>(d, stream);
    if (d.r == 3) return start_data<T, V, 3, 2>(d, stream);
    if (d.stride_h == 1) return start_data<T, V, 5, 1>(d, stream);
    return start_data<T, V, 5, 2>(d, stream);
  }
  return launch(&any_data_kernel<T>, dim3(blocks_for(static_cast<int64_t>(d.n) * d.h * d.w * d.c)),
                dim3(kThreads), 0, stream, d);
}

// Channels a thread of weights_kernel: few registers for the sums of each, so that many threads hide the
// reads.
int weights_vector(const DepthwiseBackward& d) {
  return d.type == Elem::f32 ? 2 : 4;
}
template <class T, int V, int kWindow, int kStride>
cudaError_t start_weights(const DepthwiseBackward& d, float* partial, int multiprocessors,
                          cudaStream_t stream) {
  const Shares share = shares_of(d, V, multiprocessors);
  const cudaError_t status = launch(&weights_kernel<T, V, kWindow, kStride>, dim3(share.tiles, share.blocks),
                                    dim3(kThreads), 0, stream, d, share, partial);
  if (status != cudaSuccess) return status;
  return depthwise_add_partial(d, partial, share.blocks, stream);
}
template <class T, int V>
cudaError_t start_weights(const DepthwiseBackward& d, float* partial, int multiprocessors,
                          cudaStream_t stream) {
  if (depthwise_has_window(d, weights_vector(d))) {
    if (d.r == 3 && d.stride_h == 1) return start_weights<T, V, 3, 1>(d, partial, multiprocessors, stream);
    if (d.r == 3) return start_weights<T, V, 3, 2>(d, partial, multiprocessors, stream);
    if (d.stride_h == 1) return start_weights<T, V, 5, 1>(d, partial, multiprocessors, stream);
    return start_weights<T, V, 5, 2>(d, partial, multiprocessors, stream);
  }
  return launch(&any_weights_kernel<T>, dim3(static_cast<unsigned>(d.c * d.r * d.s)), dim3(kThreads), 0,
                stream, d);
}

}  // namespace

bool depthwise_has_window(const DepthwiseBackward& d, int v) {
  return d.r == d.s && (d.r == 3 || d.r == 5) && d.stride_h == d.stride_w &&
         (d.stride_h == 1 || d.stride_h == 2) && d.dilation_h == 1 && d.dilation_w == 1 && d.c % v == 0 &&
         d.pad_h >= 0 && d.pad_w >= 0 && d.h < 65536 && d.n < 65536 &&
         static_cast<int64_t>(d.w + d.s) * d.c < (int64_t{1} << 31);
}

cudaError_t depthwise_add_partial(const DepthwiseBackward& d, const float* partial, int blocks,
                                  cudaStream_t stream) {
  return launch(&finish_kernel, dim3((d.c + 31) / 32, d.r * d.s), dim3(32 * kFinishTeams), 0, stream, d,
                partial, blocks);
}

cudaError_t depthwise_backward_data(const DepthwiseBackward& d, cudaStream_t stream) {
  if (d.type == Elem::f16) return start_data<__half, 8>(d, stream);
  if (d.type == Elem::bf16) return start_data<__nv_bfloat16, 8>(d, stream);
  return start_data<float, 4>(d, stream);
}

int64_t depthwise_partial_bytes(const DepthwiseBackward& d, int multiprocessors) {
  const int v = weights_vector(d);
  if (!depthwise_has_window(d, v)) return 0;
  return static_cast<int64_t>(shares_of(d, v, multiprocessors).blocks) * d.r * d.s * d.c * 4;
}
cudaError_t depthwise_backward_weights(const DepthwiseBackward& d, float* partial, int multiprocessors,
                                       cudaStream_t stream) {
  if (d.type == Elem::f16) return start_weights<__half, 4>(d, partial, multiprocessors, stream);
  if (d.type == Elem::bf16) return start_weights<__nv_bfloat16, 4>(d, partial, multiprocessors, stream);
  return start_weights<float, 2>(d, partial, multiprocessors, stream);
}

}  // namespace pelton::backend::cuda
