// SPDX-License-Identifier: Apache-2.0
// Conversions between double/float and the small floating formats, by their published definitions.
// Rounding is to nearest, ties to even. Out of range: `saturate` picks the largest finite value, otherwise
// infinity where the format has one and NaN where it has not (f4e2m1 has neither and always saturates).
#pragma once

#include <bit>
#include <cstdint>

#include "tensor/dtype.h"

namespace pelton {

uint16_t f16_from_float(float v);
float f16_to_float(uint16_t bits);
inline uint16_t bf16_from_float(float v) {
  uint32_t u = std::bit_cast<uint32_t>(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);  // quiet the NaN
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
inline float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// One rounding straight from double (no double rounding through f32).
uint32_t small_float_from_double(DType t, double v, bool saturate);
double small_float_to_double(DType t, uint32_t bits);

}  // namespace pelton
