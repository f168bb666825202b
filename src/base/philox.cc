// SPDX-License-Identifier: Apache-2.0
#include "base/philox.h"

#include <bit>
#include <cmath>

namespace pelton {
namespace {

// ln(n / 2^32) for n in [1, 2^32]. With n = m * 2^e and m in [sqrt(1/2), sqrt(2)): ln m = 2 artanh(s), where
// s = (m - 1) / (m + 1) and |s| <= 0.172, so the series to s^21 is exact to the last bits of a double.
double log_fraction(uint64_t n) {
  int exponent = std::bit_width(n);
  double m = static_cast<double>(n) / static_cast<double>(uint64_t{1} << exponent);  // [1/2, 1)
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  double s = (m - 1) / (m + 1), q = s * s, sum = 0;
  for (int k = 21; k >= 1; k -= 2) sum = sum * q + 1.0 / k;
  return 2 * s * sum + (exponent - 32) * 0.69314718055994531;
}

// Taylor series on [0, pi/4]; the first dropped term is below 1e-17.
double sin_small(double x) {
  double q = x * x, sum = 1;
  for (int k = 16; k >= 2; k -= 2) sum = 1 - q / (k * (k + 1)) * sum;
  return x * sum;
}
double cos_small(double x) {
  double q = x * x, sum = 1;
  for (int k = 17; k >= 1; k -= 2) sum = 1 - q / (k * (k + 1)) * sum;
  return sum;
}

}  // namespace

// Box and Muller: a radius from one word, an angle from the other. The top two bits of the angle word choose
// the quadrant, the rest the place in it.
NormalPair normal_from_bits(uint32_t radius_word, uint32_t angle_word) {
  double radius = std::sqrt(-2 * log_fraction(uint64_t{radius_word} + 1));
  double place = static_cast<double>(angle_word & 0x3FFFFFFF) * 0x1p-30;
  constexpr double half_pi = 1.5707963267948966;
  double c, s;
  if (place <= 0.5) {
    c = cos_small(place * half_pi);
    s = sin_small(place * half_pi);
  } else {
    c = sin_small((1 - place) * half_pi);
    s = cos_small((1 - place) * half_pi);
  }
  switch (angle_word >> 30) {
    case 0:
      return {radius * c, radius * s};
    case 1:
      return {-radius * s, radius * c};
    case 2:
      return {-radius * c, -radius * s};
    default:
      return {radius * s, -radius * c};
  }
}

double RandomStream::normal(uint64_t element) const {
  PhiloxBlock words = block(element / 4);
  NormalPair pair =
      element % 4 < 2 ? normal_from_bits(words[0], words[1]) : normal_from_bits(words[2], words[3]);
  return element % 2 == 0 ? pair.first : pair.second;
}

}  // namespace pelton
