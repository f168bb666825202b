// SPDX-License-Identifier: Apache-2.0
// The emulation with own/device.cuh in it: what that uses of the device.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>

#include "backend/cuda/emulated.h"

using std::isfinite;
static inline float __fdividef(float a, float b) {
  return a / b;
}
static inline double rsqrt(double x) {
  return 1 / std::sqrt(x);
}
static inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
#define __expf std::exp
#define __noinline__

#include "backend/cuda/own/device.cuh"

template <>
struct pelton::backend::cuda::EmulatedValue<__half> {
  static float of(uint16_t bits) { return __half2float(std::bit_cast<__half>(bits)); }
};
