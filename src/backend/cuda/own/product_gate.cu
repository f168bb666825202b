// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
#include "backend/cuda/own/product_gate.h"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 20;

// The slope of gelu's tanh form.
__device__ __forceinline__ float gelu_slope(float x) {
  constexpr float k = 0.79788456080286536f, cubic = 0.044715f;
  const float t = tanhf(k * x * (1 + cubic * x * x));
  return 0.5f * (1 + t + x * (1 - t * t) * k * (1 + 3 * cubic * x * x));
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) gate_kernel(const ProductGate p, int64_t vectors) {
  let_next_start();
  inputs_ready();
  T* const d = static_cast<T*>(p.d);
  const T* const x = static_cast<const T*>(p.x);
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < vectors;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    float g[V], v[V];
    load_v<V>(d + i * V, g);
    load_v<V>(x + i * V, v);
#pragma unroll
    for (int e = 0; e < V; ++e) g[e] = p.gelu_tanh ? g[e] * gelu_slope(v[e]) : v[e] > 0 ? g[e] : 0.0f;
    store_v<V>(d + i * V, g);
  }
}

// A byte a thread.
template <class T>
__global__ void __launch_bounds__(kThreads)
    mask_kernel(const ProductGate p, uint8_t* mask, int64_t bytes_a_row, int64_t bytes) {
  let_next_start();
  inputs_ready();
  const T* const x = static_cast<const T*>(p.x);
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < bytes;
       i += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t row = i / bytes_a_row, first = i % bytes_a_row * 8;
    unsigned byte = 0;
#pragma unroll
    for (int bit = 0; bit < 8; ++bit)
      if (first + bit < p.columns && to_float(x[row * p.columns + first + bit]) > 0) byte |= 1u << bit;
    mask[i] = static_cast<uint8_t>(byte);
  }
}

dim3 blocks_for(int64_t threads) {
  return dim3(static_cast<unsigned>(std::min((threads + kThreads - 1) / kThreads, kMostBlocks)));
}

template <class T, int V>
cudaError_t start_gate(const ProductGate& p, cudaStream_t stream) {
  const int64_t count = p.rows * p.columns;
  if (count % V == 0)
    return launch(&gate_kernel<T, V>, blocks_for(count / V), dim3(kThreads), 0, stream, p, count / V);
  return launch(&gate_kernel<T, 1>, blocks_for(count), dim3(kThreads), 0, stream, p, count);
}
template <class T>
cudaError_t start_mask(const ProductGate& p, uint8_t* mask, int64_t pitch, cudaStream_t stream) {
  const int64_t bytes = p.rows * (pitch / 8);
  return launch(&mask_kernel<T>, blocks_for(bytes), dim3(kThreads), 0, stream, p, mask, pitch / 8, bytes);
}

}  // namespace

cudaError_t apply_gate(const ProductGate& p, cudaStream_t stream) {
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  if (p.type == Elem::f16) return start_gate<__half, 8>(p, stream);
  if (p.type == Elem::bf16) return start_gate<__nv_bfloat16, 8>(p, stream);
  return start_gate<float, 4>(p, stream);
}

cudaError_t gate_mask(const ProductGate& p, void* mask, int64_t pitch, cudaStream_t stream) {
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  auto* to = static_cast<uint8_t*>(mask);
  if (p.type == Elem::f16) return start_mask<__half>(p, to, pitch, stream);
  if (p.type == Elem::bf16) return start_mask<__nv_bfloat16>(p, to, pitch, stream);
  return start_mask<float>(p, to, pitch, stream);
}

}  // namespace pelton::backend::cuda
