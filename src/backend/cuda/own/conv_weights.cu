// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/conv_weights.h"

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 128;

// The share of a thread in the element of its block; Sum: the type to add up in.
template <class T, class Sum>
__device__ Sum share(const ConvWeights& d) {
  const int taps = d.kernel[0] * d.kernel[1] * d.kernel[2], c_each = d.c / d.groups, k_each = d.k / d.groups;
  const int64_t element = blockIdx.x;
  const int tap = static_cast<int>(element % taps), k = static_cast<int>(element / taps / c_each);
  const int c = static_cast<int>(element / taps % c_each) + k / k_each * c_each;
  const int t[3] = {tap / (d.kernel[1] * d.kernel[2]), tap / d.kernel[2] % d.kernel[1], tap % d.kernel[2]};
  const int64_t places = static_cast<int64_t>(d.out[0]) * d.out[1] * d.out[2];
  const int64_t area = static_cast<int64_t>(d.in[0]) * d.in[1] * d.in[2];
  const T *g = static_cast<const T*>(d.g), *x = static_cast<const T*>(d.x);
  Sum sum = 0;
  for (int64_t i = threadIdx.x; i < d.n * places; i += blockDim.x) {
    const int64_t image = i / places, place = i % places;
    const int o[3] = {static_cast<int>(place / d.out[2] / d.out[1]),
                      static_cast<int>(place / d.out[2] % d.out[1]), static_cast<int>(place % d.out[2])};
    int64_t at = 0;
    bool inside = true;
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      const int from = o[a] * d.stride[a] - d.low[a] + t[a] * d.dilation[a];
      inside &= from >= 0 && from < d.in[a];
      at = at * d.in[a] + from;
    }
    if (!inside) continue;
    const int64_t g_at = d.g_channels_last ? i * d.k + k : (image * d.k + k) * places + place;
    const int64_t x_at = d.x_channels_last ? (image * area + at) * d.c + c : (image * d.c + c) * area + at;
    sum = fma(static_cast<Sum>(to_float(g[g_at])), static_cast<Sum>(to_float(x[x_at])), sum);
  }
  return sum;
}

// The sum over the block, in thread 0.
template <class Sum>
__device__ Sum block_sum(Sum sum) {
  __shared__ Sum shared[kThreads];
  shared[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  return shared[0];
}

template <class T>
__global__ void __launch_bounds__(kThreads) kernel(const ConvWeights d) {
  let_next_start();
  inputs_ready();
  const float sum = block_sum(share<T, float>(d));
  if (threadIdx.x == 0) store_as<1>(d.result_type, d.dw, blockIdx.x, {sum});
}
template <class T>
__global__ void __launch_bounds__(kThreads) exact_kernel(const ConvWeights d, double* exact) {
  let_next_start();
  inputs_ready();
  const double sum = block_sum(share<T, double>(d));
  if (threadIdx.x == 0) exact[blockIdx.x] = sum;
}
template <class T>
__global__ void plain_kernel(const ConvWeights d, float* plain) {
  let_next_start();
  inputs_ready();
  plain[blockIdx.x] = share<T, float>(d);
}

__global__ void __launch_bounds__(256) move_kernel(const void* from, Elem from_type, void* to, Elem to_type,
                                                   int64_t a, int64_t b, int64_t taps) {
  let_next_start();
  inputs_ready();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a * b * taps) return;
  const int64_t tap = i % taps, at_b = i / taps % b, at_a = i / taps / b;
  float one[1];
  load_as<1>(from_type, from, (at_a * taps + tap) * b + at_b, one);
  store_as<1>(to_type, to, i, one);
}

template <class T>
__global__ void __launch_bounds__(256) turn_kernel(const T* from, T* to, int64_t a, int64_t taps) {
  let_next_start();
  inputs_ready();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < a * taps) to[i] = from[i % a * taps + taps - 1 - i / a];
}

}  // namespace

namespace {

unsigned elements_of(const ConvWeights& d) {
  return static_cast<unsigned>(static_cast<int64_t>(d.k) * (d.c / d.groups) * d.kernel[0] * d.kernel[1] *
                               d.kernel[2]);
}
template <class T>
cudaError_t start_exact(const ConvWeights& d, double* exact, float* plain, cudaStream_t stream) {
  const dim3 grid(elements_of(d));
  const cudaError_t status = launch(&exact_kernel<T>, grid, dim3(kThreads), 0, stream, d, exact);
  return status == cudaSuccess ? launch(&plain_kernel<T>, grid, dim3(1), 0, stream, d, plain) : status;
}

}  // namespace

cudaError_t conv_weights(const ConvWeights& d, cudaStream_t stream) {
  const dim3 grid(elements_of(d));
  if (d.type == Elem::f16) return launch(&kernel<__half>, grid, dim3(kThreads), 0, stream, d);
  if (d.type == Elem::bf16) return launch(&kernel<__nv_bfloat16>, grid, dim3(kThreads), 0, stream, d);
  return launch(&kernel<float>, grid, dim3(kThreads), 0, stream, d);
}

cudaError_t conv_weights_exact(const ConvWeights& d, double* exact, float* plain, cudaStream_t stream) {
  if (d.type == Elem::f16) return start_exact<__half>(d, exact, plain, stream);
  if (d.type == Elem::bf16) return start_exact<__nv_bfloat16>(d, exact, plain, stream);
  return start_exact<float>(d, exact, plain, stream);
}

cudaError_t taps_last(const void* from, Elem from_type, void* to, Elem to_type, int64_t a, int64_t b,
                      int64_t taps, cudaStream_t stream) {
  const int64_t count = a * b * taps;
  if (count == 0) return cudaSuccess;
  return launch(&move_kernel, dim3(static_cast<unsigned>((count + 255) / 256)), dim3(256), 0, stream, from,
                from_type, to, to_type, a, b, taps);
}

cudaError_t taps_turned(const void* from, void* to, int element_bytes, int64_t a, int64_t taps,
                        cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((a * taps + 255) / 256));
  if (element_bytes == 2)
    return launch(&turn_kernel<uint16_t>, grid, dim3(256), 0, stream, static_cast<const uint16_t*>(from),
                  static_cast<uint16_t*>(to), a, taps);
  return launch(&turn_kernel<uint32_t>, grid, dim3(256), 0, stream, static_cast<const uint32_t*>(from),
                static_cast<uint32_t*>(to), a, taps);
}

}  // namespace pelton::backend::cuda
