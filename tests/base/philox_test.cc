// SPDX-License-Identifier: Apache-2.0
#include "base/philox.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>
#include <vector>

using namespace pelton;

// Vectors published with the generator (kat_vectors of Random123).
static_assert(philox4x32_10({0, 0, 0, 0}, {0, 0}) ==
              PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
              PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

TEST_CASE("seed, step, node and element each change the bits") {
  RandomStream base{1, 2, 3};
  CHECK(base.bits(7) == RandomStream{1, 2, 3}.bits(7));
  CHECK(base.bits(7) != RandomStream{9, 2, 3}.bits(7));
  CHECK(base.bits(7) != RandomStream{1 + (uint64_t{1} << 40), 2, 3}.bits(7));
  CHECK(base.bits(7) != RandomStream{1, 9, 3}.bits(7));
  CHECK(base.bits(7) != RandomStream{1, 2, 9}.bits(7));
  CHECK(base.bits(7) != base.bits(8));
  CHECK(base.bits(7) != base.bits(7 + (uint64_t{4} << 32)));
}

TEST_CASE("uniform numbers are in [0, 1) with the moments of the uniform law") {
  CHECK(uniform_from_bits(0) == 0.0f);
  CHECK(uniform_from_bits(0xffffffff) == 1.0f - 0x1p-24f);
  RandomStream s{42, 0, 1};
  const int n = 200000;
  double sum = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    double u = s.uniform(static_cast<uint64_t>(i));
    sum += u;
    squares += u * u;
  }
  CHECK(std::abs(sum / n - 0.5) < 5 * std::sqrt(1.0 / 12 / n));
  CHECK(std::abs(squares / n - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / n));
}

TEST_CASE("normal_from_bits equals the formula in long double") {
  for (uint32_t a : {0u, 1u, 77u, 0x7fffffffu, 0xb504f333u, 0xfffffffeu, 0xffffffffu})
    for (uint32_t b :
         {0u, 1u, 0x1fffffffu, 0x20000000u, 0x20000001u, 0x40000000u, 0x9abcdef0u, 0xffffffffu}) {
      long double u = (static_cast<long double>(a) + 1) / 4294967296.0L;
      long double angle = 2 * std::numbers::pi_v<long double> * static_cast<long double>(b) / 4294967296.0L;
      long double r = std::sqrt(-2 * std::log(u));
      NormalPair got = normal_from_bits(a, b);
      CAPTURE(a);
      CAPTURE(b);
      CHECK(std::abs(static_cast<double>(r * std::cos(angle) - got.first)) <= 4e-15);
      CHECK(std::abs(static_cast<double>(r * std::sin(angle) - got.second)) <= 4e-15);
    }
}

TEST_CASE("normal numbers have mean 0, variance 1, kurtosis 3 and uncorrelated neighbours") {
  RandomStream s{7, 3, 5};
  const int n = 200000;
  double m1 = 0, m2 = 0, m4 = 0, neighbour = 0, last = 0;
  for (int i = 0; i < n; ++i) {
    double x = s.normal(static_cast<uint64_t>(i));
    m1 += x;
    m2 += x * x;
    m4 += x * x * x * x;
    neighbour += x * last;
    last = x;
  }
  CHECK(std::abs(m1 / n) < 5 / std::sqrt(n));
  CHECK(std::abs(m2 / n - 1) < 5 * std::sqrt(2.0 / n));
  CHECK(std::abs(m4 / n - 3) < 5 * std::sqrt(96.0 / n));
  CHECK(std::abs(neighbour / n) < 5 / std::sqrt(n));
}
