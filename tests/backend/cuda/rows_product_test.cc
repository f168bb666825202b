// SPDX-License-Identifier: Apache-2.0
// The kernel's text, run on the host, against sums in f64.
#include <doctest/doctest.h>

#include <cmath>

#include "backend/cuda/emulated.h"
#include "base/philox.h"
// After the emulation.
#include "backend/cuda/own/rows_product.cuh"

using namespace pelton;
using namespace pelton::backend::cuda;

namespace {

std::vector<EmulatedBf16> numbers(int64_t count, uint64_t seed) {
  std::vector<EmulatedBf16> out(static_cast<size_t>(count));
  const RandomStream stream{seed};
  for (int64_t i = 0; i < count; ++i)
    out[static_cast<size_t>(i)].bits = static_cast<uint16_t>(
        std::bit_cast<uint32_t>(static_cast<float>(stream.normal(static_cast<uint64_t>(i)))) >> 16);
  return out;
}

template <int kM, int kN>
void check(int64_t rows, int m, int n, int multiprocessors) {
  CAPTURE(rows);
  CAPTURE(m);
  CAPTURE(n);
  const std::vector<EmulatedBf16> g = numbers(rows * m, 1), x = numbers(rows * n, 2);
  Emulation::current() = Emulation();
  Emulation::current().allow(g.data(), g.size() * 2);
  Emulation::current().allow(x.data(), x.size() * 2);
  RowsProduct p;
  p.g = g.data();
  p.x = x.data();
  p.rows = rows;
  p.m = m;
  p.n = n;
  p.multiprocessors = multiprocessors;
  const RowsProductShares s = rows_product_shares(p);
  REQUIRE(s.tile_m == kM);
  REQUIRE(s.tile_n == kN);
  CHECK(s.parts * s.rows_each >= rows);
  CHECK((s.parts - 1) * s.rows_each < std::max<int64_t>(rows, 1));
  CHECK(rows_product_scratch_bytes(p) == int64_t{4} * s.parts * m * n);
  const auto count = static_cast<size_t>(m) * static_cast<size_t>(n);
  std::vector<float> partial(count * static_cast<size_t>(s.parts), NAN);
  for (int part = 0; part < s.parts; ++part)
    for (int tile = 0; tile < s.tiles; ++tile)
      Emulation::current().run(kRowsThreads, {tile, part},
                               [&] { rows_kernel<EmulatedBf16, kM, kN>(p, s, partial.data()); });
  CHECK(Emulation::current().outside() == 0);
  double worst = 0;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double exact = 0, got = 0;
      for (int64_t r = 0; r < rows; ++r)
        exact += static_cast<double>(bf16_value(g[static_cast<size_t>(r * m + i)].bits)) *
                 bf16_value(x[static_cast<size_t>(r * n + j)].bits);
      for (int part = 0; part < s.parts; ++part)
        got += partial[static_cast<size_t>(part) * count + static_cast<size_t>(i * n + j)];
      worst = std::max(worst, std::abs(got - exact));
      if (std::isnan(got)) worst = INFINITY;
    }
  // f32 sums of products of bf16, which are exact.
  CHECK(worst <= 1e-5 * std::sqrt(static_cast<double>(rows)) + 1e-30);
}

}  // namespace

TEST_CASE("gradients of weights by rows: the kernel's text computes the sums, at every size of tile") {
  check<32, 32>(1000, 32, 16, 1);
  check<64, 32>(700, 96, 16, 1);   // two tiles, the second half empty
  check<32, 64>(333, 24, 144, 1);  // three tiles, rows that end inside a stage
  check<64, 64>(129, 72, 64, 2);
  check<32, 32>(5, 8, 8, 1);  // fewer rows than a stage
  check<32, 32>(0, 8, 8, 1);
}
