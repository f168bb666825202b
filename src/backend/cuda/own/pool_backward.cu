// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/pool_backward.h"

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr uint16_t kNone = 0xFFFF;

// Where a thread works in [N,C,S...] or [N,S...,C]: V channels of one place.
struct Place {
  int64_t plane;  // an image (channels last), or an image's channel
  int channel, at[3];
};
template <int V>
__device__ __forceinline__ bool place_of(const Pool& w, const int (&size)[3], int64_t thread, Place& p) {
  const int groups = w.channels_last ? w.c / V : 1;
  const int64_t places = static_cast<int64_t>(size[0]) * size[1] * size[2];
  const int64_t planes = static_cast<int64_t>(w.n) * (w.channels_last ? 1 : w.c);
  if (thread >= planes * places * groups) return false;
  int64_t rest;
  if (planes * places * groups < (int64_t{1} << 31)) {
    const auto t = static_cast<unsigned>(thread), r = t / groups;
    p.channel = w.channels_last ? static_cast<int>(t - r * groups) * V : 0;
    p.plane = r / static_cast<unsigned>(places);
    rest = r % static_cast<unsigned>(places);
  } else {
    const int64_t r = thread / groups;
    p.channel = w.channels_last ? static_cast<int>(thread - r * groups) * V : 0;
    p.plane = r / places;
    rest = r % places;
  }
  const auto place = static_cast<unsigned>(rest);
  p.at[2] = static_cast<int>(place % size[2]);
  p.at[1] = static_cast<int>(place / size[2] % size[1]);
  p.at[0] = static_cast<int>(place / size[2] / size[1]);
  return true;
}
__device__ __forceinline__ int64_t element(const Pool& w, const int (&size)[3], const Place& p, int a, int b,
                                           int c) {
  const int64_t step = w.channels_last ? w.c : 1;
  return (p.plane * size[0] * size[1] * size[2] + (static_cast<int64_t>(a) * size[1] + b) * size[2] + c) *
             step +
         p.channel;
}

// Which tap of its window each result came from.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) tap_kernel(const PoolBackward d) {
  let_next_start();
  inputs_ready();
  const Pool& w = d.window;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  Place p;
  if (!place_of<V>(w, w.out, thread, p)) return;
  float best[V];
  uint16_t taps[V];
#pragma unroll
  for (int e = 0; e < V; ++e) taps[e] = kNone;
  int tap = 0;
  for (int ka = 0; ka < w.kernel[0]; ++ka) {
    const int a = p.at[0] * w.stride[0] - w.low[0] + ka * w.dilation[0];
    for (int kb = 0; kb < w.kernel[1]; ++kb) {
      const int b = p.at[1] * w.stride[1] - w.low[1] + kb * w.dilation[1];
      for (int kc = 0; kc < w.kernel[2]; ++kc, ++tap) {
        const int c = p.at[2] * w.stride[2] - w.low[2] + kc * w.dilation[2];
        if (static_cast<unsigned>(a) >= static_cast<unsigned>(w.in[0]) ||
            static_cast<unsigned>(b) >= static_cast<unsigned>(w.in[1]) ||
            static_cast<unsigned>(c) >= static_cast<unsigned>(w.in[2]))
          continue;
        float v[V];
        load_v<V>(static_cast<const T*>(w.x) + element(w, w.in, p, a, b, c), v);
#pragma unroll
        for (int e = 0; e < V; ++e)
          if (taps[e] == kNone || v[e] > best[e] || (v[e] != v[e] && best[e] == best[e])) {
            best[e] = v[e];
            taps[e] = static_cast<uint16_t>(tap);
          }
      }
    }
  }
  Pack<uint16_t, V> out;
#pragma unroll
  for (int e = 0; e < V; ++e) out.v[e] = taps[e];
  *reinterpret_cast<Pack<uint16_t, V>*>(d.taps + thread * V) = out;
}

// Elements that the average of the window at `o` along one axis counts.
__device__ __forceinline__ int counted(const Pool& w, int axis, int o) {
  int count = 0;
  for (int k = 0; k < w.kernel[axis]; ++k) {
    const int at = o * w.stride[axis] - w.low[axis] + k * w.dilation[axis];
    count += w.count_padding ? at < w.in[axis] + w.high[axis] : at >= 0 && at < w.in[axis];
  }
  return count;
}

// kDense: no dilation.
template <class T, int V, bool kDense>
__global__ void __launch_bounds__(kThreads) gather_kernel(const PoolBackward d) {
  let_next_start();
  inputs_ready();
  const Pool& w = d.window;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  Place p;
  if (!place_of<V>(w, w.in, thread, p)) return;
  // The windows along each axis that reach the place, from their last to their first.
  int last[3], windows[3], taps[3];  // the tap of the last window that is here; those before are a stride on
#pragma unroll
  for (int a = 0; a < 3; ++a) {
    const int from = p.at[a] + w.low[a], reach = (w.kernel[a] - 1) * w.dilation[a];
    const int highest = min(from / w.stride[a], w.out[a] - 1);
    const int lowest = max(0, (from - reach + w.stride[a] - 1) / w.stride[a]);
    last[a] = highest;
    windows[a] = from < 0 ? 0 : max(0, highest - max(0, from < reach ? 0 : lowest) + 1);
    taps[a] = from - highest * w.stride[a];
  }
  float sum[V] = {};
  for (int i = 0; i < windows[0]; ++i)
    for (int j = 0; j < windows[1]; ++j)
      for (int k = 0; k < windows[2]; ++k) {
        const int behind[3] = {taps[0] + i * w.stride[0], taps[1] + j * w.stride[1],
                               taps[2] + k * w.stride[2]};
        int tap;
        if constexpr (kDense) {
          tap = (behind[0] * w.kernel[1] + behind[1]) * w.kernel[2] + behind[2];
        } else {
          if (behind[0] % w.dilation[0] != 0 || behind[1] % w.dilation[1] != 0 ||
              behind[2] % w.dilation[2] != 0)
            continue;
          tap = (behind[0] / w.dilation[0] * w.kernel[1] + behind[1] / w.dilation[1]) * w.kernel[2] +
                behind[2] / w.dilation[2];
        }
        const int a = last[0] - i, b = last[1] - j, c = last[2] - k;
        const int64_t at = element(w, w.out, p, a, b, c);
        float g[V];
        load_v<V>(static_cast<const T*>(d.g) + at, g);
        if (w.max) {
          const auto from = *reinterpret_cast<const Pack<uint16_t, V>*>(d.taps + at);
#pragma unroll
          for (int e = 0; e < V; ++e) sum[e] += from.v[e] == tap ? g[e] : 0.0f;
        } else {
          const auto divisor = static_cast<float>(counted(w, 0, a) * counted(w, 1, b) * counted(w, 2, c));
#pragma unroll
          for (int e = 0; e < V; ++e) sum[e] += g[e] / divisor;
        }
      }
  store_v<V>(static_cast<T*>(w.y) + thread * V, sum);
}

int64_t elements(const Pool& w, const int (&size)[3]) {
  return static_cast<int64_t>(w.n) * w.c * size[0] * size[1] * size[2];
}
unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

template <class T, int V>
cudaError_t start(const PoolBackward& d, cudaStream_t stream) {
  const Pool& w = d.window;
  if (w.max) {
    const cudaError_t status =
        launch(&tap_kernel<T, V>, dim3(blocks_for(elements(w, w.out) / V)), dim3(kThreads), 0, stream, d);
    if (status != cudaSuccess) return status;
  }
  const bool dense = w.dilation[0] == 1 && w.dilation[1] == 1 && w.dilation[2] == 1;
  return launch(dense ? &gather_kernel<T, V, true> : &gather_kernel<T, V, false>,
                dim3(blocks_for(elements(w, w.in) / V)), dim3(kThreads), 0, stream, d);
}
template <class T>
cudaError_t start(const PoolBackward& d, cudaStream_t stream) {
  if (d.window.channels_last && d.window.c % 8 == 0) return start<T, 8>(d, stream);
  return start<T, 1>(d, stream);
}

}  // namespace

int64_t pool_backward_scratch_bytes(const Pool& w) {
  return w.max ? elements(w, w.out) * 2 : 0;
}

cudaError_t pool_backward(const PoolBackward& d, cudaStream_t stream) {
  if (elements(d.window, d.window.in) == 0) return cudaSuccess;
  if (elements(d.window, d.window.out) == 0)
    return cudaMemsetAsync(d.window.y, 0,
                           static_cast<size_t>(elements(d.window, d.window.in) * elem_bytes(d.window.type)),
                           stream);
  if (d.window.type == Elem::f16) return start<__half>(d, stream);
  if (d.window.type == Elem::bf16) return start<__nv_bfloat16>(d, stream);
  return start<float>(d, stream);
}

}  // namespace pelton::backend::cuda
