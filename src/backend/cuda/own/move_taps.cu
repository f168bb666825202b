// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/move_taps.h"

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    move_kernel(const T* from, T* to, int64_t a, int64_t b, int64_t taps) {
  let_next_start();
  inputs_ready();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= a * b * taps) return;
  const int64_t at_b = i % b, t = i / b % taps, at_a = i / b / taps;
  to[i] = from[(at_a * b + at_b) * taps + t];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    spread_kernel(const T* from, T* to, int64_t count, int b, int rows, int columns, int64_t a_stride,
                  int64_t b_stride) {
  let_next_start();
  inputs_ready();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t plane = i / columns / rows;
  to[i] = from[plane / b * a_stride + plane % b * b_stride + i % columns];
}

template <int V>
__global__ void __launch_bounds__(kThreads) steps_kernel(const ApplySteps g) {
  let_next_start();
  inputs_ready();
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (i >= static_cast<int64_t>(g.n) * g.c * g.places) return;
  int image, channel;
  if (static_cast<int64_t>(g.n) * g.c * g.places < (int64_t{1} << 31)) {
    const auto at = static_cast<unsigned>(i), places = static_cast<unsigned>(g.places);
    image = static_cast<int>(at / (g.c * places));
    channel = static_cast<int>(g.channels_last ? at % g.c : at / places % g.c);
  } else {
    image = static_cast<int>(i / (g.c * g.places));
    channel = static_cast<int>(g.channels_last ? i % g.c : i / g.places % g.c);
  }
  float x[V];
  load_as<V>(g.type, g.y, i, x);
  apply_epilogue<V>(g.epilogue, x, i, image, channel, g.c);
  store_as<V>(g.type, g.y, i, x);
}

template <class T>
__global__ void __launch_bounds__(kThreads) noise_kernel(T* to, int64_t count, uint32_t seed) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  uint32_t h = static_cast<uint32_t>(i) * 2654435761u + 12345u + seed * 40503u;
  h ^= h >> 15;
  h *= 2246822519u;
  h ^= h >> 13;
  to[i] = from_float<T>(static_cast<float>(h >> 8) * (2.0f / 16777216.0f) - 1.0f);
}

}  // namespace

cudaError_t move_taps(const void* from, void* to, int element_bytes, int64_t a, int64_t b, int64_t taps,
                      cudaStream_t stream) {
  const int64_t count = a * b * taps;
  if (count == 0) return cudaSuccess;
  if (element_bytes == 2)
    return launch(&move_kernel<uint16_t>, dim3(blocks_for(count)), dim3(kThreads), 0, stream,
                  static_cast<const uint16_t*>(from), static_cast<uint16_t*>(to), a, b, taps);
  return launch(&move_kernel<uint32_t>, dim3(blocks_for(count)), dim3(kThreads), 0, stream,
                static_cast<const uint32_t*>(from), static_cast<uint32_t*>(to), a, b, taps);
}

cudaError_t apply_steps(const ApplySteps& g, cudaStream_t stream) {
  const int64_t count = static_cast<int64_t>(g.n) * g.c * g.places;
  if (count == 0 || g.epilogue.count == 0) return cudaSuccess;
  if (g.channels_last && g.c % 8 == 0)
    return launch(&steps_kernel<8>, dim3(blocks_for(count / 8)), dim3(kThreads), 0, stream, g);
  return launch(&steps_kernel<1>, dim3(blocks_for(count)), dim3(kThreads), 0, stream, g);
}

cudaError_t spread_rows(const void* from, void* to, int element_bytes, int a, int b, int rows, int columns,
                        int64_t a_stride, int64_t b_stride, cudaStream_t stream) {
  const int64_t count = int64_t{1} * a * b * rows * columns;
  if (count == 0) return cudaSuccess;
  if (element_bytes == 2)
    return launch(&spread_kernel<uint16_t>, dim3(blocks_for(count)), dim3(kThreads), 0, stream,
                  static_cast<const uint16_t*>(from), static_cast<uint16_t*>(to), count, b, rows, columns,
                  a_stride, b_stride);
  return launch(&spread_kernel<uint32_t>, dim3(blocks_for(count)), dim3(kThreads), 0, stream,
                static_cast<const uint32_t*>(from), static_cast<uint32_t*>(to), count, b, rows, columns,
                a_stride, b_stride);
}

cudaError_t fill_noise(void* to, Elem type, int64_t count, cudaStream_t stream, uint32_t seed) {
  if (count == 0) return cudaSuccess;
  if (type == Elem::f16)
    noise_kernel<<<blocks_for(count), kThreads, 0, stream>>>(static_cast<__half*>(to), count, seed);
  else if (type == Elem::bf16)
    noise_kernel<<<blocks_for(count), kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(to), count, seed);
  else
    noise_kernel<<<blocks_for(count), kThreads, 0, stream>>>(static_cast<float*>(to), count, seed);
  return cudaGetLastError();
}

}  // namespace pelton::backend::cuda
