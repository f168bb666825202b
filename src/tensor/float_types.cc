// SPDX-License-Identifier: Apache-2.0
#include "tensor/float_types.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pelton {
namespace {

// What a format does at the top of its range.
enum class Top : uint8_t {
  ieee,    // exponent all ones: infinity and NaN
  fn,      // only the all-ones pattern is NaN, no infinity
  fnuz,    // the pattern of minus zero is NaN, no infinity, no minus zero
  finite,  // neither
};
struct Format {
  int exponent_bits, mantissa_bits, bias;
  Top top;
};

Format format_of(DType t) {
  switch (t) {
    case DType::f16:
      return {5, 10, 15, Top::ieee};
    case DType::bf16:
      return {8, 7, 127, Top::ieee};
    case DType::f8e4m3fn:
      return {4, 3, 7, Top::fn};
    case DType::f8e5m2:
      return {5, 2, 15, Top::ieee};
    case DType::f8e4m3fnuz:
      return {4, 3, 8, Top::fnuz};
    case DType::f8e5m2fnuz:
      return {5, 2, 16, Top::fnuz};
    case DType::f4e2m1:
      return {2, 1, 1, Top::finite};
    default:
      fail(ErrorCode::internal, cat(name(t), " is not a small float format"));
  }
}

uint32_t nan_bits(const Format& f) {
  int sign_shift = f.exponent_bits + f.mantissa_bits;
  switch (f.top) {
    case Top::ieee:
      return (((1u << f.exponent_bits) - 1) << f.mantissa_bits) | (1u << (f.mantissa_bits - 1));
    case Top::fn:
      return (1u << sign_shift) - 1;
    case Top::fnuz:
      return 1u << sign_shift;
    case Top::finite:
      return 1u << sign_shift;  // no NaN: negative zero stands for it
  }
  return 0;
}

// OCP E8M0: a bare exponent, 0xff is NaN; conversion rounds to the nearest power of two, up on a tie.
uint32_t e8m0_from_double(double v, bool saturate) {
  if (std::isnan(v) || v < 0) return 0xff;
  if (v == 0) return 0;
  if (std::isinf(v)) return saturate ? 0xfe : 0xff;
  int e;
  double m = std::frexp(v, &e);  // v = m * 2^e, m in [0.5, 1)
  int power = e - 1 + (m >= 0.75 ? 1 : 0);
  if (power > 127) return saturate ? 0xfe : 0xff;
  return power < -127 ? 0u : static_cast<uint32_t>(power + 127);
}

}  // namespace

uint32_t small_float_from_double(DType t, double v, bool saturate) {
  if (t == DType::f8e8m0) return e8m0_from_double(v, saturate);
  const Format f = format_of(t);
  const int sign_shift = f.exponent_bits + f.mantissa_bits;
  const uint32_t sign = std::signbit(v) ? 1u << sign_shift : 0u;
  if (std::isnan(v)) return f.top == Top::ieee || f.top == Top::fn ? sign | nan_bits(f) : nan_bits(f);
  const double largest = highest(t), magnitude = std::fabs(v);
  const uint32_t largest_bits = [&] {
    switch (f.top) {
      case Top::ieee:
        return (((1u << f.exponent_bits) - 1) << f.mantissa_bits) - 1;
      case Top::fn:
        return (1u << sign_shift) - 2;
      default:
        return (1u << sign_shift) - 1;
    }
  }();
  auto over = [&]() -> uint32_t {
    if (saturate || f.top == Top::finite) return sign | largest_bits;
    if (f.top == Top::ieee) return sign | (((1u << f.exponent_bits) - 1) << f.mantissa_bits);
    return f.top == Top::fnuz ? nan_bits(f) : sign | nan_bits(f);
  };
  if (std::isinf(v)) return over();
  if (magnitude == 0) return f.top == Top::fnuz ? 0u : sign;
  int e = std::max(std::ilogb(magnitude), 1 - f.bias);
  double steps = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - e));  // ties to even
  if (std::ldexp(steps, e - f.mantissa_bits) > largest) return over();
  auto units = static_cast<uint32_t>(steps);
  uint32_t pattern;
  if (units < (1u << f.mantissa_bits)) {
    pattern = units;  // subnormal or zero
  } else {
    if (units == (2u << f.mantissa_bits)) {
      units >>= 1;
      ++e;
    }
    pattern = (static_cast<uint32_t>(e + f.bias) << f.mantissa_bits) + (units - (1u << f.mantissa_bits));
  }
  if (pattern == 0 && f.top == Top::fnuz) return 0u;
  return sign | pattern;
}

double small_float_to_double(DType t, uint32_t bits) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  if (t == DType::f8e8m0) return bits == 0xff ? nan : std::ldexp(1.0, static_cast<int>(bits) - 127);
  const Format f = format_of(t);
  const int sign_shift = f.exponent_bits + f.mantissa_bits;
  const bool negative = (bits >> sign_shift) & 1u;
  const uint32_t body = bits & ((1u << sign_shift) - 1);
  const uint32_t exponent = body >> f.mantissa_bits, mantissa = body & ((1u << f.mantissa_bits) - 1);
  const uint32_t all_ones = (1u << f.exponent_bits) - 1;
  if (f.top == Top::ieee && exponent == all_ones)
    return mantissa ? std::copysign(nan, negative ? -1.0 : 1.0)
                    : (negative ? -1.0 : 1.0) * std::numeric_limits<double>::infinity();
  if (f.top == Top::fn && body == (1u << sign_shift) - 1) return nan;
  if (f.top == Top::fnuz && negative && body == 0) return nan;
  double v = exponent == 0 ? std::ldexp(static_cast<double>(mantissa), 1 - f.bias - f.mantissa_bits)
                           : std::ldexp(static_cast<double>(mantissa + (1u << f.mantissa_bits)),
                                        static_cast<int>(exponent) - f.bias - f.mantissa_bits);
  return negative ? -v : v;
}

// Both on the bits: whole weight tensors go through here.
uint16_t f16_from_float(float v) {
  uint32_t u = std::bit_cast<uint32_t>(v);
  const uint32_t sign = (u >> 16) & 0x8000u;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) return static_cast<uint16_t>(small_float_from_double(DType::f16, v, false));  // NaN
  if (u >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65536 and more
  if (u < 0x38800000u) {
    // Below the least normal number 2^-14 the unit is 2^-24, that of f32 at 0.5, whose addition rounds.
    const float shifted = std::bit_cast<float>(u) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  u += 0xfffu + ((u >> 13) & 1u);  // to nearest, ties to even; a carry ends in infinity
  return static_cast<uint16_t>(sign | ((u - 0x38000000u) >> 13));
}
float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t body = bits & 0x7fffu;
  if (body >= 0x7c00u) return static_cast<float>(small_float_to_double(DType::f16, bits));
  if (body >= 0x0400u) return std::bit_cast<float>(sign | ((body << 13) + 0x38000000u));
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(body) * 0x1p-24f));
}

}  // namespace pelton
