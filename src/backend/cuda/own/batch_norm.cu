// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/batch_norm.h"

#include <algorithm>

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256;

// How the sums are shared out. Channels last: a block has `lanes` groups of V channels and kThreads / lanes
// lines of places; blocks [tiles of channels, parts]. Plain: a block has one channel; blocks [channels,
// parts].
struct Shares {
  int lanes = 1, tiles = 1, parts = 1;
};
int vector_of(const BatchNorm& d) {
  const int v = d.type == Elem::f32 ? 4 : 8;
  if (d.channels_last) return d.c % v == 0 ? v : 1;
  return d.places % v == 0 ? v : 1;
}
Shares shares_of(const BatchNorm& d) {
  Shares s;
  const int v = vector_of(d);
  const int64_t rows = d.n * d.places;
  int64_t at_once = kThreads * v;
  if (d.channels_last) {
    const int groups = d.c / v;
    while (s.lanes * 2 <= kThreads && s.lanes < groups) s.lanes *= 2;
    s.tiles = (groups + s.lanes - 1) / s.lanes;
    at_once = kThreads / s.lanes;
  } else {
    s.tiles = d.c;
  }
  const int64_t wanted = std::max(1, d.multiprocessors * 4 / s.tiles);
  s.parts = static_cast<int>(std::clamp<int64_t>(rows / (at_once * 4), 1, wanted));
  return s;
}

// Whether the gradient at a place counts, from what the norm (computed again) or its follower yielded there.
__device__ __forceinline__ bool counts(const BatchNorm& d, float y) {
  return y > 0 && (d.through == BatchNorm::positive || y < 6);
}

// The gradient after the gate; x is the data there.
template <class T, int V>
__device__ __forceinline__ void load_gradient(const BatchNorm& d, int64_t at, const float (&x)[V],
                                              const float (&mean)[V], const float (&factor)[V],
                                              const float (&bias)[V], float (&g)[V]) {
  load_v<V>(static_cast<const T*>(d.g) + at, g);
  if (d.through == BatchNorm::open) return;
  float y[V];
  if (d.gate) {
    load_v<V>(static_cast<const T*>(d.gate) + at, y);
  } else {
#pragma unroll
    for (int e = 0; e < V; ++e) y[e] = to_float(from_float<T>(fmaf(x[e] - mean[e], factor[e], bias[e])));
  }
#pragma unroll
  for (int e = 0; e < V; ++e)
    if (!counts(d, y[e])) g[e] = 0;
}

// What belongs to V channels (channels last) or to one (plain).
template <int V>
struct Channels {
  float mean[V], rstd[V], factor[V], bias[V];
  __device__ __forceinline__ Channels(const BatchNorm& d, int channel, bool normalise) {
#pragma unroll
    for (int e = 0; e < V; ++e) {
      const int c = d.channels_last ? channel + e : channel;
      float one[1] = {0};
      mean[e] = d.mean[c];
      rstd[e] = d.rstd[c];
      factor[e] = bias[e] = 0;
      if (!normalise) continue;
      load_as<1>(d.parameter_type, d.scale, c, one);
      factor[e] = one[0] * rstd[e];
      if (d.bias) {
        load_as<1>(d.parameter_type, d.bias, c, one);
        bias[e] = one[0];
      }
    }
  }
};

// Two sums a channel to partial[part][2][C]: of x - x[0] and its square, or of g and g (x - mean).
template <class T, int V, bool kBackward>
__global__ void __launch_bounds__(kThreads) sums_kernel(const BatchNorm d, const Shares share) {
  __shared__ float shared[2][kThreads * V];
  let_next_start();
  inputs_ready();
  const T* const x = static_cast<const T*>(d.x);
  float a[V] = {}, b[V] = {};
  const int lane = d.channels_last ? threadIdx.x % share.lanes : 0;
  const int channel = d.channels_last ? (blockIdx.x * share.lanes + lane) * V : blockIdx.x;
  const bool idle = channel >= d.c;
  const int safe = idle ? 0 : channel;
  float shift[V];
  if constexpr (!kBackward) {
#pragma unroll
    for (int e = 0; e < V; ++e)
      shift[e] = to_float(x[d.channels_last ? safe + e : static_cast<int64_t>(safe) * d.places]);
  }
  auto add = [&](int64_t at, const auto& channels) {
    float v[V];
    load_v<V>(x + at, v);
    if constexpr (kBackward) {
      float g[V];
      load_gradient<T, V>(d, at, v, channels.mean, channels.factor, channels.bias, g);
#pragma unroll
      for (int e = 0; e < V; ++e) {
        a[e] += g[e];
        b[e] = fmaf(g[e], v[e] - channels.mean[e], b[e]);
      }
    } else {
#pragma unroll
      for (int e = 0; e < V; ++e) {
        const float centred = v[e] - shift[e];
        a[e] += centred;
        b[e] = fmaf(centred, centred, b[e]);
      }
    }
  };
  auto walk = [&](const auto& channels) {
    if (d.channels_last) {
      const int64_t rows = d.n * d.places, step = static_cast<int64_t>(gridDim.y) * (kThreads / share.lanes);
      int64_t row = static_cast<int64_t>(blockIdx.y) * (kThreads / share.lanes) + threadIdx.x / share.lanes;
#pragma unroll 4
      for (; !idle && row < rows; row += step) add(row * d.c + channel, channels);
    } else {
      const int64_t groups = d.places / V, all = d.n * groups,
                    step = static_cast<int64_t>(gridDim.y) * kThreads;
#pragma unroll 4
      for (int64_t i = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x; i < all; i += step)
        add((i / groups * d.c + channel) * d.places + i % groups * V, channels);
    }
  };
  if constexpr (kBackward)
    walk(Channels<V>(d, safe, d.through != BatchNorm::open && !d.gate));
  else
    walk(0);
#pragma unroll
  for (int e = 0; e < V; ++e) {
    shared[0][threadIdx.x * V + e] = a[e];
    shared[1][threadIdx.x * V + e] = b[e];
  }
  __syncthreads();
  float* const partial = d.scratch + static_cast<int64_t>(blockIdx.y) * 2 * d.c;
  if (d.channels_last) {
    const int width = share.lanes * V;
    for (int i = threadIdx.x; i < 2 * width; i += kThreads) {
      const int which = i / width, at = i % width, c = blockIdx.x * width + at;
      float sum = 0;
      for (int t = at; t < kThreads * V; t += width) sum += shared[which][t];
      if (c < d.c) partial[which * d.c + c] = sum;
    }
  } else {
    for (int half = kThreads * V / 2; half > 0; half /= 2) {
      for (int i = threadIdx.x; i < half; i += kThreads) {
        shared[0][i] += shared[0][i + half];
        shared[1][i] += shared[1][i + half];
      }
      __syncthreads();
    }
    if (threadIdx.x < 2) partial[threadIdx.x * d.c + blockIdx.x] = shared[threadIdx.x][0];
  }
}

// What the last pass needs of each channel, behind the partial sums: [3][C].
__device__ __forceinline__ float* table_of(const BatchNorm& d, int parts) {
  return d.scratch + static_cast<int64_t>(parts) * 2 * d.c;
}

// A block 32 channels, 32 threads each.
template <bool kBackward>
__global__ void __launch_bounds__(1024) finish_kernel(const BatchNorm d, int parts) {
  __shared__ float shared[2][32][33];
  let_next_start();
  inputs_ready();
  const int lane = threadIdx.x % 32, part = threadIdx.x / 32, c = blockIdx.x * 32 + lane;
  float a = 0, b = 0;
  if (c < d.c)
    for (int p = part; p < parts; p += 32) {
      a += d.scratch[static_cast<int64_t>(p) * 2 * d.c + c];
      b += d.scratch[(static_cast<int64_t>(p) * 2 + 1) * d.c + c];
    }
  shared[0][part][lane] = a;
  shared[1][part][lane] = b;
  __syncthreads();
  if (part != 0 || c >= d.c) return;
  for (int p = 1; p < 32; ++p) {
    a += shared[0][p][lane];
    b += shared[1][p][lane];
  }
  float* const table = table_of(d, parts);
  const float count = static_cast<float>(d.n * d.places);
  float one[1];
  load_as<1>(d.parameter_type, d.scale, c, one);
  if constexpr (kBackward) {
    const float rstd = d.rstd[c];
    table[c] = one[0] * rstd;
    table[d.c + c] = a / count;
    table[2 * d.c + c] = b / count * rstd * rstd;
    if (d.dbias) store_as<1>(d.parameter_type, d.dbias, c, {a});
    if (d.dscale) store_as<1>(d.parameter_type, d.dscale, c, {b * rstd});
  } else {
    const int64_t first = d.channels_last ? c : static_cast<int64_t>(c) * d.places;
    float shift[1];
    load_as<1>(d.type, d.x, first, shift);
    const float offset = a / count, mean = shift[0] + offset;
    const float var = fmaxf(b / count - offset * offset, 0.0f), rstd = 1.0f / sqrtf(var + d.eps);
    table[c] = mean;
    table[d.c + c] = one[0] * rstd;
    load_as<1>(d.parameter_type, d.bias, c, one);
    table[2 * d.c + c] = one[0];
    auto blend = [&](const void* old, void* next, float now) {
      if (!next) return;
      float before[1];
      load_as<1>(d.statistic_type, old, c, before);
      store_as<1>(d.statistic_type, next, c, {before[0] * d.keep + now * (1 - d.keep)});
    };
    blend(d.old_mean, d.new_mean, mean);
    blend(d.old_var, d.new_var, isnan(b) ? b : var);
    if (d.batch_mean) d.batch_mean[c] = mean;
    if (d.batch_rstd) d.batch_rstd[c] = rstd;
  }
}

template <class T, int V, bool kBackward>
__global__ void __launch_bounds__(kThreads) apply_kernel(const BatchNorm d, int parts) {
  let_next_start();
  inputs_ready();
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (i >= static_cast<int64_t>(d.n) * d.c * d.places) return;
  int channel, image;
  if (i < (int64_t{1} << 31)) {
    const auto at = static_cast<unsigned>(i), places = static_cast<unsigned>(d.places);
    channel = static_cast<int>(d.channels_last ? at % d.c : at / places % d.c);
    image = static_cast<int>(at / (d.c * places));
  } else {
    channel = static_cast<int>(d.channels_last ? i % d.c : i / d.places % d.c);
    image = static_cast<int>(i / (d.c * d.places));
  }
  const float* const table = table_of(d, parts);
  float x[V], one[V], two[V], three[V];
  load_v<V>(static_cast<const T*>(d.x) + i, x);
#pragma unroll
  for (int e = 0; e < V; ++e) {
    const int c = d.channels_last ? channel + e : channel;
    one[e] = table[c];
    two[e] = table[d.c + c];
    three[e] = table[2 * d.c + c];
  }
  if constexpr (kBackward) {
    const Channels<V> channels(d, channel, d.through != BatchNorm::open && !d.gate);
    float g[V], out[V];
    load_gradient<T, V>(d, i, x, channels.mean, channels.factor, channels.bias, g);
    if (d.gated) store_v<V>(static_cast<T*>(d.gated) + i, g);
#pragma unroll
    for (int e = 0; e < V; ++e) out[e] = one[e] * (g[e] - two[e] - (x[e] - channels.mean[e]) * three[e]);
    store_v<V>(static_cast<T*>(d.dx) + i, out);
  } else {
#pragma unroll
    for (int e = 0; e < V; ++e) x[e] = fmaf(x[e] - one[e], two[e], three[e]);
    apply_epilogue<V>(d.epilogue, x, i, image, channel, d.c);
    store_v<V>(static_cast<T*>(d.y) + i, x);
  }
}

template <class T, int V, bool kBackward>
cudaError_t start(const BatchNorm& d, cudaStream_t stream) {
  const Shares share = shares_of(d);
  cudaError_t status = launch(&sums_kernel<T, V, kBackward>, dim3(share.tiles, share.parts), dim3(kThreads),
                              0, stream, d, share);
  if (status != cudaSuccess) return status;
  status = launch(&finish_kernel<kBackward>, dim3((d.c + 31) / 32), dim3(1024), 0, stream, d, share.parts);
  if (status != cudaSuccess || (kBackward && !d.dx) || (!kBackward && !d.y)) return status;
  const int64_t threads = static_cast<int64_t>(d.n) * d.c * d.places / V;
  return launch(&apply_kernel<T, V, kBackward>,
                dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads)), dim3(kThreads), 0, stream,
                d, share.parts);
}
template <class T, int V, bool kBackward>
cudaError_t start_any(const BatchNorm& d, cudaStream_t stream) {
  if (vector_of(d) == V) return start<T, V, kBackward>(d, stream);
  return start<T, 1, kBackward>(d, stream);
}
template <bool kBackward>
cudaError_t start_type(const BatchNorm& d, cudaStream_t stream) {
  if (d.type == Elem::f16) return start_any<__half, 8, kBackward>(d, stream);
  if (d.type == Elem::bf16) return start_any<__nv_bfloat16, 8, kBackward>(d, stream);
  return start_any<float, 4, kBackward>(d, stream);
}

}  // namespace

int64_t batch_norm_scratch_bytes(const BatchNorm& d) {
  return (static_cast<int64_t>(shares_of(d).parts) * 2 + 3) * d.c * 4;
}
cudaError_t batch_norm_train(const BatchNorm& d, cudaStream_t stream) {
  return start_type<false>(d, stream);
}
cudaError_t batch_norm_backward(const BatchNorm& d, cudaStream_t stream) {
  return start_type<true>(d, stream);
}

}  // namespace pelton::backend::cuda
