// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/rows.h"

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kBlock = 256;

struct Sum {
  static constexpr float kStart = 0;
  static __device__ float of(float a, float b) { return a + b; }
};
struct Max {  // NaN does not win: the sum of exponentials brings it in
  static constexpr float kStart = -INFINITY;
  static __device__ float of(float a, float b) { return fmaxf(a, b); }
};

// Over the kThreads threads of a row: a warp or the block.
template <class F, int kThreads>
__device__ float reduce(float x, float* shared) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) x = F::of(x, __shfl_xor_sync(0xFFFFFFFFu, x, i));
  if constexpr (kThreads > 32) {
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    x = F::kStart;
#pragma unroll
    for (int i = 0; i < kThreads / 32; ++i) x = F::of(x, shared[i]);
  }
  return x;
}

// The row is kChunks * V elements a thread; those behind its end count for nothing.
template <class T, int V, int kThreads, int kChunks>
__global__ void __launch_bounds__(kBlock) kernel(const Rows g) {
  __shared__ float shared[kThreads / 32];
  constexpr int kRows = kBlock / kThreads;
  const int thread = threadIdx.x % kThreads;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kThreads;
  let_next_start();
  inputs_ready();
  const bool idle = row >= g.rows;  // whole warps
  const T* const x = static_cast<const T*>(g.x) + (idle ? 0 : row) * g.size;
  float v[kChunks][V];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int at = (c * kThreads + thread) * V;
    if (!idle && at < g.size) {
      load_v<V>(x + at, v[c]);
    } else {
#pragma unroll
      for (int e = 0; e < V; ++e) v[c][e] = 0;
    }
  }
  const bool norm = g.op == Rows::layer_norm || g.op == Rows::rms_norm;
  float shift = 0, factor = 1;  // results: (x - shift) * factor
  if (norm) {
    const float count = static_cast<float>(g.size);
    if (g.op == Rows::layer_norm) {
      float sum = 0;
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
#pragma unroll
        for (int e = 0; e < V; ++e) sum += v[c][e];
      shift = reduce<Sum, kThreads>(sum, shared) / count;
    }
    float squares = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int e = 0; e < V; ++e)
        if ((c * kThreads + thread) * V < g.size) squares = fmaf(v[c][e] - shift, v[c][e] - shift, squares);
    factor = rsqrtf(reduce<Sum, kThreads>(squares, shared) / count + g.eps);
    if (thread == 0 && !idle) {
      if (g.mean) g.mean[row] = shift;
      if (g.rstd) g.rstd[row] = factor;
    }
  } else {
    float top = -INFINITY, sum = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int e = 0; e < V; ++e)
        if ((c * kThreads + thread) * V < g.size) top = fmaxf(top, v[c][e]);
    top = reduce<Max, kThreads>(top, shared);
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int e = 0; e < V; ++e)
        if ((c * kThreads + thread) * V < g.size) {
          const float p = __expf(v[c][e] - top);
          if (g.op == Rows::softmax) v[c][e] = p;
          sum += p;
        }
    sum = reduce<Sum, kThreads>(sum, shared);
    if (g.op == Rows::softmax)
      factor = 1 / sum;
    else
      shift = top + logf(sum);
  }
  if (idle) return;
  T* const y = static_cast<T*>(g.y) + row * g.size;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int at = (c * kThreads + thread) * V;
    if (at >= g.size) continue;
    float scale[V], bias[V], out[V];
    if (g.scale) load_as<V>(g.parameter_type, g.scale, at, scale);
    if (g.bias) load_as<V>(g.parameter_type, g.bias, at, bias);
#pragma unroll
    for (int e = 0; e < V; ++e) {
      out[e] = (v[c][e] - shift) * factor;
      if (g.scale) out[e] *= scale[e];
      if (g.bias) out[e] += bias[e];
    }
    store_v<V>(y + at, out);
  }
}

// A block a row of any size, read again for each step.
template <class T>
__global__ void __launch_bounds__(kBlock) long_kernel(const Rows g) {
  __shared__ float shared[kBlock / 32];
  let_next_start();
  inputs_ready();
  const T* const x = static_cast<const T*>(g.x) + static_cast<int64_t>(blockIdx.x) * g.size;
  float shift = 0, factor = 1;
  if (g.op == Rows::layer_norm || g.op == Rows::rms_norm) {
    const float count = static_cast<float>(g.size);
    if (g.op == Rows::layer_norm) {
      float sum = 0;
      for (int i = threadIdx.x; i < g.size; i += kBlock) sum += to_float(x[i]);
      shift = reduce<Sum, kBlock>(sum, shared) / count;
    }
    float squares = 0;
    for (int i = threadIdx.x; i < g.size; i += kBlock) {
      const float d = to_float(x[i]) - shift;
      squares = fmaf(d, d, squares);
    }
    factor = rsqrtf(reduce<Sum, kBlock>(squares, shared) / count + g.eps);
    if (threadIdx.x == 0) {
      if (g.mean) g.mean[blockIdx.x] = shift;
      if (g.rstd) g.rstd[blockIdx.x] = factor;
    }
  } else {
    float top = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < g.size; i += kBlock) top = fmaxf(top, to_float(x[i]));
    top = reduce<Max, kBlock>(top, shared);
    for (int i = threadIdx.x; i < g.size; i += kBlock) sum += __expf(to_float(x[i]) - top);
    sum = reduce<Sum, kBlock>(sum, shared);
    shift = top;
    factor = sum;
  }
  T* const y = static_cast<T*>(g.y) + static_cast<int64_t>(blockIdx.x) * g.size;
  for (int i = threadIdx.x; i < g.size; i += kBlock) {
    float v = to_float(x[i]) - shift;
    if (g.op == Rows::softmax)
      v = __expf(v) / factor;
    else if (g.op == Rows::log_softmax)
      v -= logf(factor);
    else
      v *= factor;
    float one[1];
    if (g.scale) {
      load_as<1>(g.parameter_type, g.scale, i, one);
      v *= one[0];
    }
    if (g.bias) {
      load_as<1>(g.parameter_type, g.bias, i, one);
      v += one[0];
    }
    y[i] = from_float<T>(v);
  }
}

template <class T, int V, int kThreads, int kChunks>
cudaError_t start(const Rows& g, cudaStream_t stream) {
  constexpr int kRows = kBlock / kThreads;
  return launch(&kernel<T, V, kThreads, kChunks>, dim3(static_cast<unsigned>((g.rows + kRows - 1) / kRows)),
                dim3(kBlock), 0, stream, g);
}
template <class T, int V>
cudaError_t start_any(const Rows& g, cudaStream_t stream) {
  auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  if (g.size % V == 0 && aligned(g.x) && aligned(g.y) && aligned(g.scale) && aligned(g.bias)) {
    const int chunks = g.size / V;
    // Few rows: more threads for each.
    if (chunks <= 32) return start<T, V, 32, 1>(g, stream);
    if (chunks <= 128 && g.rows >= 512) return start<T, V, 32, 4>(g, stream);
    if (chunks <= 256) return start<T, V, 256, 1>(g, stream);
    if (chunks <= 1024) return start<T, V, 256, 4>(g, stream);
  }
  return launch(&long_kernel<T>, dim3(static_cast<unsigned>(g.rows)), dim3(kBlock), 0, stream, g);
}

}  // namespace

cudaError_t normalize_rows(const Rows& g, cudaStream_t stream) {
  if (g.rows == 0 || g.size == 0) return cudaSuccess;
  if (g.type == Elem::f16) return start_any<__half, 8>(g, stream);
  if (g.type == Elem::bf16) return start_any<__nv_bfloat16, 8>(g, stream);
  return start_any<float, 4>(g, stream);
}

}  // namespace pelton::backend::cuda
