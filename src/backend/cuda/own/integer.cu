// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/integer.h"

#include <algorithm>

#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256, kTile = 16, kDepth = 64;

__device__ __forceinline__ int at(const Bytes& b, int64_t i) {
  return b.has_sign ? static_cast<const int8_t*>(b.data)[i] : static_cast<const uint8_t*>(b.data)[i];
}
__device__ __forceinline__ int zero(const Bytes& b, int64_t i) {
  if (!b.zero) return 0;
  return b.has_sign ? static_cast<const int8_t*>(b.zero)[i] : static_cast<const uint8_t*>(b.zero)[i];
}

__device__ __forceinline__ int64_t places_of(const int (&sizes)[3]) {
  return int64_t{1} * sizes[0] * sizes[1] * sizes[2];
}
// Where an element of x lies.
__device__ __forceinline__ int64_t x_at(const IntegerConv& d, int64_t image, int64_t channel, int64_t place,
                                        int64_t places) {
  return d.x_last ? (image * places + place) * d.c + channel : (image * d.c + channel) * places + place;
}

// Splits a result place, and gives the place of x under a tap or -1.
struct Place {
  int o[3];
  __device__ __forceinline__ Place(const IntegerConv& d, int64_t place) {
    o[2] = static_cast<int>(place % d.out[2]);
    o[1] = static_cast<int>(place / d.out[2] % d.out[1]);
    o[0] = static_cast<int>(place / d.out[2] / d.out[1]);
  }
  __device__ __forceinline__ int64_t under(const IntegerConv& d, int tap) const {
    const int t[3] = {tap / d.kernel[2] / d.kernel[1], tap / d.kernel[2] % d.kernel[1], tap % d.kernel[2]};
    int64_t place = 0;
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      const int64_t p = int64_t{1} * o[a] * d.stride[a] + int64_t{1} * t[a] * d.dilation[a] - d.low[a];
      if (p < 0 || p >= d.in[a]) return -1;
      place = place * d.in[a] + p;
    }
    return place;
  }
};

__global__ void __launch_bounds__(kThreads) conv_kernel(const IntegerConv d, int64_t count) {
  let_next_start();
  inputs_ready();
  const int64_t places = places_of(d.out), in_places = places_of(d.in);
  const int taps = static_cast<int>(places_of(d.kernel)), depth = d.c / d.groups, each = d.k / d.groups;
  const int x_zero = zero(d.x, 0);
  for (int64_t i = int64_t{1} * blockIdx.x * kThreads + threadIdx.x; i < count;
       i += int64_t{1} * gridDim.x * kThreads) {
    const int64_t image = i / d.k / places, rest = i - image * d.k * places;
    const int channel = static_cast<int>(d.y_last ? rest % d.k : rest / places);
    const Place place(d, d.y_last ? rest / d.k : rest % places);
    const int w_zero = zero(d.w, d.w_zeros ? channel : 0);
    const int64_t first = int64_t{1} * (channel / each) * depth;
    uint32_t sum = d.bias ? static_cast<uint32_t>(d.bias[channel]) : 0;
    for (int tap = 0; tap < taps; ++tap) {
      const int64_t from = place.under(d, tap);
      if (from < 0) continue;
      for (int c = 0; c < depth; ++c)
        sum += static_cast<uint32_t>((at(d.x, x_at(d, image, first + c, from, in_places)) - x_zero) *
                                     (at(d.w, (int64_t{1} * channel * depth + c) * taps + tap) - w_zero));
    }
    d.y[i] = static_cast<int32_t>(sum);
  }
}

// A thread stores four bytes.
__global__ void __launch_bounds__(kThreads)
    windows_kernel(const IntegerConv d, int first, int width, int8_t pad, int8_t* rows, int64_t count) {
  let_next_start();
  inputs_ready();
  const int64_t places = places_of(d.out), in_places = places_of(d.in);
  const int filled = static_cast<int>(places_of(d.kernel)) * d.c, words = width / 4;
  const uint8_t shift = d.x.has_sign ? 0 : 0x80;
  for (int64_t i = int64_t{1} * blockIdx.x * kThreads + threadIdx.x; i < count;
       i += int64_t{1} * gridDim.x * kThreads) {
    const int64_t row = i / words, image = row / places;
    const Place place(d, row - image * places);
    char4 out;
    auto* const bytes = reinterpret_cast<int8_t*>(&out);
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int column = static_cast<int>(i - row * words) * 4 + b;
      bytes[b] = 0;
      if (column >= filled) continue;
      const int64_t from = place.under(d, column / d.c);
      bytes[b] =
          from < 0
              ? pad
              : static_cast<int8_t>(static_cast<const uint8_t*>(
                                        d.x.data)[x_at(d, first + image, column % d.c, from, in_places)] ^
                                    shift);
    }
    reinterpret_cast<char4*>(rows)[i] = out;
  }
}

__global__ void __launch_bounds__(kThreads) max_pool_kernel(const IntegerConv d, uint8_t* y, int64_t count) {
  let_next_start();
  inputs_ready();
  const int64_t places = places_of(d.out), in_places = places_of(d.in);
  const int taps = static_cast<int>(places_of(d.kernel));
  for (int64_t i = int64_t{1} * blockIdx.x * kThreads + threadIdx.x; i < count;
       i += int64_t{1} * gridDim.x * kThreads) {
    const int64_t image = i / d.c / places, rest = i - image * d.c * places;
    const int64_t channel = d.x_last ? rest % d.c : rest / places;
    const Place place(d, d.x_last ? rest / d.c : rest % places);
    int top = d.x.has_sign ? -128 : 0;
    for (int tap = 0; tap < taps; ++tap) {
      const int64_t from = place.under(d, tap);
      if (from >= 0) top = max(top, at(d.x, x_at(d, image, channel, from, in_places)));
    }
    y[i] = static_cast<uint8_t>(top);
  }
}

__global__ void __launch_bounds__(kThreads) add_kernel(int32_t* y, const int32_t* sums, const int32_t* add,
                                                       int k, int64_t places, bool last, int64_t count) {
  let_next_start();
  inputs_ready();
  for (int64_t i = int64_t{1} * blockIdx.x * kThreads + threadIdx.x; i < count;
       i += int64_t{1} * gridDim.x * kThreads) {
    const int64_t channel = last ? i % k : i / places % k;
    y[i] =
        static_cast<int32_t>(static_cast<uint32_t>(sums[i]) + static_cast<uint32_t>(add ? add[channel] : 0));
  }
}

// A block has a tile of results and walks over the depth.
__global__ void __launch_bounds__(kTile* kTile) matmul_kernel(const IntegerMatmul d, int64_t batches) {
  __shared__ int left[kTile][kDepth + 1], right[kDepth][kTile + 1];
  let_next_start();
  inputs_ready();
  const int tx = threadIdx.x % kTile, ty = threadIdx.x / kTile;
  const int64_t row0 = int64_t{1} * blockIdx.y * kTile, column0 = int64_t{1} * blockIdx.x * kTile;
  for (int64_t batch = blockIdx.z; batch < batches; batch += gridDim.z) {
    int64_t a = 0, b = 0, a_zero = 0, b_zero = 0, rest = batch;
    for (int i = d.batch_dims - 1; i >= 0; --i) {
      const int64_t index = rest % d.batch[i];
      rest /= d.batch[i];
      a += index * d.a_batch[i];
      b += index * d.b_batch[i];
      a_zero += index * d.a_zero_batch[i];
      b_zero += index * d.b_zero_batch[i];
    }
    uint32_t sum = 0;
    for (int64_t k0 = 0; k0 < d.k; k0 += kDepth) {
      for (int i = threadIdx.x; i < kTile * kDepth; i += kTile * kTile) {
        const int64_t row = row0 + i / kDepth, column = column0 + i % kTile;
        const int64_t left_k = k0 + i % kDepth, right_k = k0 + i / kTile;
        left[i / kDepth][i % kDepth] =
            row < d.m && left_k < d.k
                ? at(d.a, a + row * d.a_row + left_k * d.a_k) - zero(d.a, a_zero + row * d.a_zero_row)
                : 0;
        right[i / kTile][i % kTile] = column < d.n && right_k < d.k
                                          ? at(d.b, b + right_k * d.b_k + column * d.b_column) -
                                                zero(d.b, b_zero + column * d.b_zero_column)
                                          : 0;
      }
      __syncthreads();
#pragma unroll 8
      for (int k = 0; k < kDepth; ++k) sum += static_cast<uint32_t>(left[ty][k] * right[k][tx]);
      __syncthreads();
    }
    if (row0 + ty < d.m && column0 + tx < d.n)
      d.y[(batch * d.m + row0 + ty) * d.n + column0 + tx] = static_cast<int32_t>(sum);
  }
}

unsigned blocks_for(int64_t count) {
  return static_cast<unsigned>(std::clamp<int64_t>((count + kThreads - 1) / kThreads, 1, 1 << 16));
}

}  // namespace

cudaError_t integer_conv(const IntegerConv& d, cudaStream_t stream) {
  const int64_t count = d.n * d.k * d.places();
  return launch(&conv_kernel, dim3(blocks_for(count)), dim3(kThreads), 0, stream, d, count);
}
cudaError_t integer_windows(const IntegerConv& d, int first, int images, int width, int8_t pad, int8_t* rows,
                            cudaStream_t stream) {
  const int64_t count = images * d.places() * (width / 4);
  return launch(&windows_kernel, dim3(blocks_for(count)), dim3(kThreads), 0, stream, d, first, width, pad,
                rows, count);
}
cudaError_t integer_add(int32_t* y, const int32_t* sums, const int32_t* add, int n, int k, int64_t places,
                        bool last, cudaStream_t stream) {
  const int64_t count = int64_t{1} * n * k * places;
  return launch(&add_kernel, dim3(blocks_for(count)), dim3(kThreads), 0, stream, y, sums, add, k, places,
                last, count);
}
cudaError_t integer_max_pool(const IntegerConv& d, void* y, cudaStream_t stream) {
  const int64_t count = int64_t{1} * d.n * d.c * d.places();
  return launch(&max_pool_kernel, dim3(blocks_for(count)), dim3(kThreads), 0, stream, d,
                static_cast<uint8_t*>(y), count);
}
cudaError_t integer_matmul(const IntegerMatmul& d, cudaStream_t stream) {
  int64_t batches = 1;
  for (int i = 0; i < d.batch_dims; ++i) batches *= d.batch[i];
  const dim3 grid(static_cast<unsigned>((d.n + kTile - 1) / kTile),
                  static_cast<unsigned>((d.m + kTile - 1) / kTile),
                  static_cast<unsigned>(std::min<int64_t>(batches, 65535)));
  return launch(&matmul_kernel, grid, dim3(kTile * kTile), 0, stream, d, batches);
}

}  // namespace pelton::backend::cuda
