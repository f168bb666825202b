// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/batch_norm.h"

#include <algorithm>
#include <type_traits>

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
// After these.
#include "backend/cuda/own/batch_norm_finish.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256, kAtOnce = 4;  // vectors that a thread has on their way

// How the data is shared out. Channels last: a block has `lanes` groups of V channels and kThreads / lanes
// rows of places; blocks [tiles of channels, parts]. Plain: a block has one channel; blocks [channels,
// parts].
struct Shares {
  int lanes = 1, tiles = 1, parts = 1;
  // From the last place to the first: what the kernel in front wrote last is still in the cache then, and
  // what is read last is still there when the next one begins at the first.
  bool down = false;
};
// Elements that a thread takes at a time: channels (channels last) or places of one channel. Steps with an
// operand of channels take it by channels.
int vector_of(const BatchNorm& d) {
  const int v = d.type == Elem::f32 ? 4 : 8;
  if (d.channels_last) return d.c % v == 0 ? v : 1;
  for (int i = 0; i < d.epilogue.count; ++i)
    if (d.epilogue.steps[i].where == EpilogueStep::channel ||
        d.epilogue.steps[i].where == EpilogueStep::image_channel)
      return 1;
  return d.places % v == 0 ? v : 1;
}
Shares shares_of(const BatchNorm& d, int blocks_each) {
  Shares s;
  const int v = vector_of(d);
  int64_t rows = d.n * d.places;  // that one thread takes one of at a time
  if (d.channels_last) {
    const int groups = d.c / v;
    s.lanes = std::min(groups, kThreads);
    s.tiles = (groups + s.lanes - 1) / s.lanes;
    rows /= kThreads / s.lanes;
  } else {
    s.tiles = d.c;
    rows /= v * kThreads;
  }
  const int64_t most = std::max(1, d.multiprocessors * blocks_each / s.tiles);
  s.parts = static_cast<int>(std::clamp<int64_t>(rows / (2 * kAtOnce), 1, most));
  return s;
}
Shares sum_shares(const BatchNorm& d) {
  Shares s = shares_of(d, d.sum_blocks);
  s.down = true;
  return s;
}

// The vectors of one thread: V channels of a place (channels last), or V places of a channel.
template <int V, bool kLast>
class Walk {
 public:
  static constexpr int kOwn = kLast ? V : 1;  // channels of the thread
  __device__ __forceinline__ Walk(const BatchNorm& d, const Shares& s) : c_(d.c), down_(s.down) {
    if (kLast) {
      const int teams = kThreads / s.lanes, team = threadIdx.x / s.lanes;
      channel = (blockIdx.x * s.lanes + threadIdx.x % s.lanes) * V;
      first = static_cast<int64_t>(blockIdx.y) * teams + team;
      step = static_cast<int64_t>(gridDim.y) * teams;
      count = team < teams && channel < d.c ? d.n * d.places : 0;
      if (channel >= d.c) channel = 0;
    } else {
      channel = blockIdx.x;
      groups_ = d.places / V;
      first = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
      step = static_cast<int64_t>(gridDim.y) * kThreads;
      count = d.n * groups_;
    }
  }
  // Where vector i begins.
  __device__ __forceinline__ int64_t at(int64_t i) const {
    if (down_) i = count - 1 - i;
    if (kLast) return i * c_ + channel;
    const int64_t image = i / groups_;
    return (image * c_ + channel) * groups_ * V + (i - image * groups_) * V;
  }
  // Calls f(offsets, how many of them are there) with up to kAtOnce offsets.
  template <class F>
  __device__ __forceinline__ void each(F&& f) const {
    int64_t i = first;
    int64_t offsets[kAtOnce];
    for (; i + (kAtOnce - 1) * step < count; i += kAtOnce * step) {
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) offsets[k] = at(i + k * step);
      f(offsets, std::integral_constant<int, kAtOnce>());
    }
    for (; i < count; i += step) {
      offsets[0] = at(i);
      f(offsets, std::integral_constant<int, 1>());
    }
  }
  int channel = 0;
  int64_t first = 0, step = 1, count = 0;

 private:
  int c_;
  bool down_;
  int64_t groups_ = 1;
};

template <int kOwn>
__device__ __forceinline__ void load_parameter(const BatchNorm& d, const void* p, int channel,
                                               float (&to)[kOwn]) {
  load_as<kOwn>(d.parameter_type, p, channel, to);
}
template <int kOwn>
__device__ __forceinline__ void load_floats(const float* p, int channel, float (&to)[kOwn]) {
  load_v<kOwn>(p + channel, to);
}

// `first` and `second` hold `count` rows of `width` values each: adds all rows to row 0, in an order that
// depends on the sizes alone. Called by the whole block.
__device__ __forceinline__ void add_rows(double* first, double* second, int count, int width) {
  __syncthreads();
  for (int left = count; left > 1;) {
    const int half = (left + 1) / 2;
    for (int i = threadIdx.x; i < (left - half) * width; i += blockDim.x) {
      first[i] += first[half * width + i];
      second[i] += second[half * width + i];
    }
    left = half;
    __syncthreads();
  }
}

// Two sums a channel to partial[part][2][C]: of x less its sample and of the square, or of g and g (x -
// mean). A thread sums in f32, which holds few elements well; all that is merged is merged in f64.
template <class T, int V, bool kLast, bool kBackward>
__global__ void __launch_bounds__(kThreads) sums_kernel(const BatchNorm d, const Shares share) {
  constexpr int kOwn = Walk<V, kLast>::kOwn;
  __shared__ double shared[2][kThreads * kOwn];
  const Walk<V, kLast> walk(d, share);
  let_next_start();
  inputs_ready();
  float a[V] = {}, b[V] = {}, shift[kOwn], factor[kOwn] = {}, bias[kOwn] = {};
  if constexpr (kBackward) {
    load_floats<kOwn>(d.mean, walk.channel, shift);
    if (d.through != BatchNorm::open) {
      float rstd[kOwn];
      load_floats<kOwn>(d.rstd, walk.channel, rstd);
      load_parameter<kOwn>(d, d.scale, walk.channel, factor);
      load_parameter<kOwn>(d, d.bias, walk.channel, bias);
#pragma unroll
      for (int e = 0; e < kOwn; ++e) factor[e] *= rstd[e];
    }
  } else {
    sample<T, kOwn>(d, walk.channel, shift);
  }
  walk.each([&](const int64_t(&at)[kAtOnce], auto some) {
    constexpr int kSome = decltype(some)::value;
    float x[kSome][V], g[kSome][V];
#pragma unroll
    for (int k = 0; k < kSome; ++k) {
      load_v<V>(static_cast<const T*>(d.x) + at[k], x[k]);
      if (kBackward) load_v<V>(static_cast<const T*>(d.g) + at[k], g[k]);
    }
#pragma unroll
    for (int k = 0; k < kSome; ++k) {
      if (kBackward) pass_gate<V, kOwn>(d, x[k], shift, factor, bias, g[k]);
#pragma unroll
      for (int e = 0; e < V; ++e) {
        const float centred = x[k][e] - shift[kOwn == 1 ? 0 : e], first = kBackward ? g[k][e] : centred;
        a[e] += first;
        b[e] = fmaf(first, centred, b[e]);
      }
    }
  });
#pragma unroll
  for (int e = 0; e < kOwn; ++e) {
    double sum = a[e], other = b[e];
#pragma unroll
    for (int k = kOwn; k < V; ++k) {  // plain: all are of one channel
      sum += a[k];
      other += b[k];
    }
    shared[0][threadIdx.x * kOwn + e] = sum;
    shared[1][threadIdx.x * kOwn + e] = other;
  }
  const int width = kLast ? share.lanes * V : 1;
  add_rows(shared[0], shared[1], kLast ? kThreads / share.lanes : kThreads, width);
  double* const partial = d.scratch + static_cast<int64_t>(blockIdx.y) * 2 * d.c;
  for (int i = threadIdx.x; i < 2 * width; i += kThreads) {
    const int which = i / width, at = i % width, c = blockIdx.x * width + at;
    if (c < d.c) partial[which * d.c + c] = shared[which][at];
  }
}

template <class T, int V, bool kLast, bool kBackward, NormEnd kEnd>
__global__ void __launch_bounds__(kThreads) apply_kernel(const BatchNorm d, const Shares share, int parts) {
  const Walk<V, kLast> walk(d, share);
  constexpr int kOwn = Walk<V, kLast>::kOwn;
  let_next_start();
  inputs_ready();
  const float* const table = table_of(d, parts);
  float one[kOwn], two[kOwn], three[kOwn], mean[kOwn] = {}, bias[kOwn] = {};
  load_floats<kOwn>(table, walk.channel, one);
  load_floats<kOwn>(table + d.c, walk.channel, two);
  load_floats<kOwn>(table + 2 * d.c, walk.channel, three);
  if constexpr (kBackward) {
    load_floats<kOwn>(d.mean, walk.channel, mean);
    if (d.through != BatchNorm::open) load_parameter<kOwn>(d, d.bias, walk.channel, bias);
  }
  bool by_image = false;
  if constexpr (kEnd == NormEnd::steps)
    for (int i = 0; i < d.epilogue.count; ++i)
      by_image |= d.epilogue.steps[i].where == EpilogueStep::image_channel;
  walk.each([&](const int64_t(&at)[kAtOnce], auto some) {
    constexpr int kSome = decltype(some)::value;
    float x[kSome][V], g[kSome][V];  // g: of the gradient, or what is added
#pragma unroll
    for (int k = 0; k < kSome; ++k) {
      load_v<V>(static_cast<const T*>(d.x) + at[k], x[k]);
      if (kBackward) load_v<V>(static_cast<const T*>(d.g) + at[k], g[k]);
      if (kEnd == NormEnd::sum_and_bounds) load_v<V>(static_cast<const T*>(d.added) + at[k], g[k]);
    }
#pragma unroll
    for (int k = 0; k < kSome; ++k) {
      if constexpr (kBackward) {
        pass_gate<V, kOwn>(d, x[k], mean, one, bias, g[k]);
#pragma unroll
        for (int e = 0; e < V; ++e) {
          const int c = kOwn == 1 ? 0 : e;
          x[k][e] = fmaf(one[c], g[k][e], fmaf(three[c], x[k][e] - mean[c], two[c]));
        }
        store_v<V>(static_cast<T*>(d.dx) + at[k], x[k]);
      } else {
#pragma unroll
        for (int e = 0; e < V; ++e) {
          const int c = kOwn == 1 ? 0 : e;
          x[k][e] = fmaf(x[k][e] - one[c], two[c], three[c]);
        }
        const int image = by_image ? static_cast<int>(at[k] / (d.c * d.places)) : 0;
        end_norm<T, V, kEnd>(d, x[k], g[k], at[k], image, walk.channel);
        store_v<V>(static_cast<T*>(d.y) + at[k], x[k]);
      }
    }
  });
}

template <class T, int V, bool kLast, bool kBackward>
cudaError_t start(const BatchNorm& d, cudaStream_t stream) {
  const Shares sums = sum_shares(d), places = shares_of(d, d.apply_blocks);
  cudaError_t status = launch(&sums_kernel<T, V, kLast, kBackward>, dim3(sums.tiles, sums.parts),
                              dim3(kThreads), 0, stream, d, sums);
  if (status != cudaSuccess) return status;
  status = launch(&finish_kernel<T, kBackward>, dim3((d.c + kFinishChannels - 1) / kFinishChannels),
                  dim3(kFinishThreads), 0, stream, d, sums.parts);
  if (status != cudaSuccess || (kBackward ? !d.dx : !d.y)) return status;
  auto* apply = &apply_kernel<T, V, kLast, kBackward, NormEnd::bounds>;
  if constexpr (!kBackward) {
    if (end_of(d) == NormEnd::steps) apply = &apply_kernel<T, V, kLast, false, NormEnd::steps>;
    if (end_of(d) == NormEnd::sum_and_bounds)
      apply = &apply_kernel<T, V, kLast, false, NormEnd::sum_and_bounds>;
  }
  return launch(apply, dim3(places.tiles, places.parts), dim3(kThreads), 0, stream, d, places, sums.parts);
}
template <class T, int V, bool kBackward>
cudaError_t start_layout(const BatchNorm& d, cudaStream_t stream) {
  return d.channels_last ? start<T, V, true, kBackward>(d, stream) : start<T, V, false, kBackward>(d, stream);
}
template <class T, int V, bool kBackward>
cudaError_t start_any(const BatchNorm& d, cudaStream_t stream) {
  if (vector_of(d) == V) return start_layout<T, V, kBackward>(d, stream);
  return start_layout<T, 1, kBackward>(d, stream);
}
template <bool kBackward>
cudaError_t start_type(const BatchNorm& d, cudaStream_t stream) {
  if (d.type == Elem::f16) return start_any<__half, 8, kBackward>(d, stream);
  if (d.type == Elem::bf16) return start_any<__nv_bfloat16, 8, kBackward>(d, stream);
  return start_any<float, 4, kBackward>(d, stream);
}

}  // namespace

int64_t batch_norm_scratch_bytes(const BatchNorm& d) {
  return (static_cast<int64_t>(sum_shares(d).parts) * 2 * 8 + 3 * 4) * d.c;
}
cudaError_t batch_norm_train(const BatchNorm& d, cudaStream_t stream) {
  return start_type<false>(started(d), stream);
}
cudaError_t batch_norm_backward(const BatchNorm& d, cudaStream_t stream) {
  return start_type<true>(started(d), stream);
}

}  // namespace pelton::backend::cuda
