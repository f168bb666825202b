// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/random.h"

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
#include "backend/cuda/own/philox.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256, kEach = 8;  // elements a thread: two blocks of words

template <bool kWhole>
__global__ void __launch_bounds__(kThreads) dropout_kernel(const Dropout d) {
  let_next_start();
  inputs_ready();
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  if (first >= d.count) return;
  float ratio[1];
  load_as<1>(d.ratio_type, d.ratio, 0, ratio);
  const float scale = 1.0f / (1.0f - ratio[0]);
  const Philox random(d.random);
  float x[kEach];
  alignas(8) uint8_t keep[kEach];
  if (kWhole) {
    load_as<kEach>(d.type, d.x, first, x);
  } else {
    for (int e = 0; e < kEach && first + e < d.count; ++e) {
      float one[1];
      load_as<1>(d.type, d.x, first + e, one);
      x[e] = one[0];
    }
  }
#pragma unroll
  for (int b = 0; b < kEach / 4; ++b) {
    const Words words = random.block(static_cast<uint64_t>(first / 4 + b));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const bool kept = uniform_from_bits(words.v[e]) >= ratio[0];
      keep[b * 4 + e] = kept;
      x[b * 4 + e] = kept ? x[b * 4 + e] * scale : 0.0f;
    }
  }
  if (kWhole) {
    store_as<kEach>(d.type, d.y, first, x);
    if (d.mask) *reinterpret_cast<uint2*>(d.mask + first) = *reinterpret_cast<const uint2*>(keep);
  } else {
    for (int e = 0; e < kEach && first + e < d.count; ++e) {
      const float one[1] = {x[e]};
      store_as<1>(d.type, d.y, first + e, one);
      if (d.mask) d.mask[first + e] = keep[e];
    }
  }
}

// ln(n / 2^32), sine and cosine on [0, pi/4]: the series of base/philox.cc, step by step.
__device__ double log_fraction(uint64_t n) {
  int exponent = 64 - __clzll(static_cast<long long>(n));
  double m = static_cast<double>(n) / static_cast<double>(1ull << exponent);
  if (m < 0.70710678118654752) {
    m = __dmul_rn(m, 2);
    --exponent;
  }
  const double s = __ddiv_rn(__dadd_rn(m, -1), __dadd_rn(m, 1)), q = __dmul_rn(s, s);
  double sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = __dadd_rn(__dmul_rn(sum, q), __ddiv_rn(1.0, k));
  return __dadd_rn(__dmul_rn(__dmul_rn(2, s), sum), __dmul_rn(exponent - 32, 0.69314718055994531));
}
__device__ double series(double x, int from, int to) {
  const double q = __dmul_rn(x, x);
  double sum = 1;
  for (int k = from; k >= to; k -= 2)
    sum = __dadd_rn(1, -__dmul_rn(__ddiv_rn(q, static_cast<double>(k * (k + 1))), sum));
  return sum;
}
__device__ double sin_small(double x) {
  return __dmul_rn(x, series(x, 16, 2));
}
__device__ double cos_small(double x) {
  return series(x, 17, 1);
}

// The first or the second of the pair that two words make.
__device__ double normal_from_bits(uint32_t radius_word, uint32_t angle_word, bool second) {
  const double radius = __dsqrt_rn(__dmul_rn(-2, log_fraction(static_cast<uint64_t>(radius_word) + 1)));
  const double place = static_cast<double>(angle_word & 0x3FFFFFFFu) * 0x1p-30;
  constexpr double kHalfPi = 1.5707963267948966;
  double c, s;
  if (place <= 0.5) {
    c = cos_small(__dmul_rn(place, kHalfPi));
    s = sin_small(__dmul_rn(place, kHalfPi));
  } else {
    c = sin_small(__dmul_rn(__dadd_rn(1, -place), kHalfPi));
    s = cos_small(__dmul_rn(__dadd_rn(1, -place), kHalfPi));
  }
  const unsigned quadrant = angle_word >> 30;
  const double factor = second ? (quadrant % 2 == 0 ? s : c) : (quadrant % 2 == 0 ? c : s);
  const bool negative = second ? quadrant >= 2 : quadrant == 1 || quadrant == 2;
  return __dmul_rn(negative ? -radius : radius, factor);
}

__global__ void __launch_bounds__(kThreads) fill_kernel(const RandomFill d) {
  let_next_start();
  inputs_ready();
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 4;
  if (first >= d.count) return;
  const Words words = Philox(d.random).block(static_cast<uint64_t>(first / 4));
  const float low = static_cast<float>(d.a), span = static_cast<float>(d.b) - low;
  for (int e = 0; e < 4 && first + e < d.count; ++e) {
    float one[1];
    if (d.kind == RandomFill::uniform)
      one[0] = __fadd_rn(__fmul_rn(uniform_from_bits(words.v[e]), span), low);
    else
      one[0] = static_cast<float>(__dadd_rn(
          __dmul_rn(normal_from_bits(words.v[e / 2 * 2], words.v[e / 2 * 2 + 1], e % 2), d.b), d.a));
    store_as<1>(d.type, d.y, first + e, one);
  }
}

unsigned blocks_for(int64_t count, int each) {
  return static_cast<unsigned>((count + kThreads * each - 1) / (kThreads * each));
}

}  // namespace

cudaError_t dropout(const Dropout& d, cudaStream_t stream) {
  if (d.count == 0) return cudaSuccess;
  if (d.count % kEach == 0)
    return launch(&dropout_kernel<true>, dim3(blocks_for(d.count, kEach)), dim3(kThreads), 0, stream, d);
  return launch(&dropout_kernel<false>, dim3(blocks_for(d.count, kEach)), dim3(kThreads), 0, stream, d);
}

cudaError_t random_fill(const RandomFill& d, cudaStream_t stream) {
  if (d.count == 0) return cudaSuccess;
  return launch(&fill_kernel, dim3(blocks_for(d.count, 4)), dim3(kThreads), 0, stream, d);
}

}  // namespace pelton::backend::cuda
