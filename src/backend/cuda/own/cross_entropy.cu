// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/cross_entropy.h"

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 512, kV = 8;

// Calls f(first, values, count) for stretches of a row that starts anywhere: what stands in front of a
// multiple of kV elements and behind the last one element by element, the rest kV at a time.
template <class T, class F>
__device__ __forceinline__ void for_row(const T* row, int64_t offset, int size, F&& f) {
  const int head = min(size, static_cast<int>((kV - offset % kV) % kV));
  const int whole = (size - head) / kV, tail = head + whole * kV;
  for (int i = threadIdx.x; i < head + size - tail; i += kThreads) {
    const int at = i < head ? i : tail + i - head;
    float v[kV] = {to_float(row[at])};
    f(at, v, 1);
  }
  for (int i = threadIdx.x; i < whole; i += kThreads) {
    const int at = head + i * kV;
    float v[kV];
    load_v<kV>(row + at, v);
    f(at, v, kV);
  }
}

// The label of a row; -1: the row does not count.
__device__ __forceinline__ int64_t label_of(const CrossEntropy& g, int64_t row) {
  const int64_t label =
      g.label64 ? static_cast<const int64_t*>(g.labels)[row] : static_cast<const int32_t*>(g.labels)[row];
  if (label == g.ignore) return -1;
  if (label >= 0 && label < g.classes) return label;
  if (g.fault) *static_cast<volatile uint32_t*>(g.fault) = 1;
  return -1;
}
__device__ __forceinline__ float weight_of(const CrossEntropy& g, int64_t label) {
  if (label < 0) return 0;
  if (!g.weights) return 1;
  float one[1];
  load_as<1>(g.weight_type, g.weights, label, one);
  return one[0];
}

struct Sum {
  float top, sum;  // sum of exp(x - top)
};
// NaN stays NaN: it makes the sum NaN.
__device__ __forceinline__ Sum joined(Sum a, Sum b) {
  const float top = fmaxf(a.top, b.top);
  if (top == -INFINITY) return {top, a.sum + b.sum};
  return {top, a.sum * __expf(a.top - top) + b.sum * __expf(b.top - top)};
}

// A block a row; scratch[row] and scratch[rows + row] get loss and weight unless each row is a result.
template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(const CrossEntropy g) {
  __shared__ Sum shared[kThreads / 32];
  let_next_start();
  inputs_ready();
  const int64_t row = blockIdx.x;
  const T* const x = static_cast<const T*>(g.x) + row * g.classes;
  Sum all = {-INFINITY, 0};
  for_row(x, row * g.classes, g.classes, [&](int, const float(&v)[kV], int count) {
    Sum part = {v[0], 0};
    if (count == kV)
#pragma unroll
      for (int e = 1; e < kV; ++e) part.top = fmaxf(part.top, v[e]);
    if (part.top == -INFINITY) {
      part.sum = 0;  // the top leaves out NaN, which must not get lost
#pragma unroll
      for (int e = 0; e < kV; ++e)
        if (e < count && v[e] != v[e]) part.sum = v[e];
    } else if (count == kV) {
#pragma unroll
      for (int e = 0; e < kV; ++e) part.sum += __expf(v[e] - part.top);
    } else {
      part.sum = v[0] != v[0] ? v[0] : 1;
    }
    all = joined(all, part);
  });
#pragma unroll
  for (int i = 16; i > 0; i /= 2)
    all = joined(all, {__shfl_xor_sync(0xFFFFFFFFu, all.top, i), __shfl_xor_sync(0xFFFFFFFFu, all.sum, i)});
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = all;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kThreads / 32; ++i) all = joined(all, shared[i]);
  const float log_sum = all.top + logf(all.sum);
  if (g.log_sums) g.log_sums[row] = log_sum;
  const int64_t label = label_of(g, row);
  const float weight = weight_of(g, label);
  const float one[1] = {label < 0 ? 0.0f : (log_sum - to_float(x[label])) * weight};
  if (g.reduction == CrossEntropy::none) {
    store_as<1>(g.loss_type, g.loss, row, one);
  } else {
    g.scratch[row] = one[0];
    g.scratch[g.rows + row] = weight;
  }
}

// The sum of values[count] by one block.
__device__ float block_sum(const float* values, int64_t count) {
  __shared__ float shared[kThreads];
  float sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += values[i];
  __syncthreads();
  shared[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  return shared[0];
}
__global__ void __launch_bounds__(kThreads) finish_kernel(const CrossEntropy g) {
  let_next_start();
  inputs_ready();
  float one[1] = {block_sum(g.scratch, g.rows)};
  if (g.reduction == CrossEntropy::mean) one[0] /= block_sum(g.scratch + g.rows, g.rows);
  if (threadIdx.x == 0) store_as<1>(g.loss_type, g.loss, 0, one);
}

// scratch[0]: the weights that count.
__global__ void __launch_bounds__(kThreads) count_kernel(const CrossEntropy g) {
  __shared__ float shared[kThreads];
  let_next_start();
  inputs_ready();
  float sum = 0;
  for (int64_t i = threadIdx.x; i < g.rows; i += kThreads) sum += weight_of(g, label_of(g, i));
  shared[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) g.scratch[0] = shared[0];
}

template <class T>
__global__ void __launch_bounds__(kThreads) backward_kernel(const CrossEntropy g) {
  let_next_start();
  inputs_ready();
  const int64_t row = blockIdx.x;
  const int64_t label = label_of(g, row);
  float one[1];
  load_as<1>(g.loss_type, g.g, g.reduction == CrossEntropy::none ? row : 0, one);
  float factor = one[0] * weight_of(g, label);
  if (g.reduction == CrossEntropy::mean) factor /= g.scratch[0];
  const float log_sum = g.known_log_sums[row];
  const int64_t offset = row * g.classes;
  for_row(static_cast<const T*>(g.x) + offset, offset, g.classes,
          [&](int at, const float(&v)[kV], int count) {
            float out[kV];
#pragma unroll
            for (int e = 0; e < kV; ++e)
              out[e] = label < 0 ? 0.0f : (__expf(v[e] - log_sum) - (at + e == label ? 1.0f : 0.0f)) * factor;
            if (count == kV)
              store_as<kV>(g.dx_type, g.dx, offset + at, out);
            else
              store_as<1>(g.dx_type, g.dx, offset + at, {out[0]});
          });
}

}  // namespace

int64_t cross_entropy_scratch_bytes(const CrossEntropy& g) {
  return g.reduction == CrossEntropy::none ? 0 : 2 * g.rows * 4 + 256;
}

cudaError_t cross_entropy(const CrossEntropy& g, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(g.rows)), block(kThreads);
  cudaError_t status = cudaSuccess;
  if (g.rows > 0) {
    if (g.type == Elem::f16)
      status = launch(&forward_kernel<__half>, grid, block, 0, stream, g);
    else if (g.type == Elem::bf16)
      status = launch(&forward_kernel<__nv_bfloat16>, grid, block, 0, stream, g);
    else
      status = launch(&forward_kernel<float>, grid, block, 0, stream, g);
  }
  if (status != cudaSuccess || g.reduction == CrossEntropy::none) return status;
  return launch(&finish_kernel, dim3(1), block, 0, stream, g);
}

cudaError_t cross_entropy_backward(const CrossEntropy& g, cudaStream_t stream) {
  if (g.rows == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(g.rows)), block(kThreads);
  if (g.reduction == CrossEntropy::mean)
    if (const cudaError_t status = launch(&count_kernel, dim3(1), block, 0, stream, g); status != cudaSuccess)
      return status;
  if (g.type == Elem::f16) return launch(&backward_kernel<__half>, grid, block, 0, stream, g);
  if (g.type == Elem::bf16) return launch(&backward_kernel<__nv_bfloat16>, grid, block, 0, stream, g);
  return launch(&backward_kernel<float>, grid, block, 0, stream, g);
}

}  // namespace pelton::backend::cuda
