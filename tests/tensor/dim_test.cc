// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "support/expect_error.h"
#include "tensor/dim.h"

using namespace pelton;
using pelton::test::expect_error;

TEST_CASE("normal form: sums and products of equal polynomials compare equal") {
  Dim n = Dim::symbol("N"), m = Dim::symbol("M");
  CHECK((n + m) * (n - m) == n * n - m * m);
  CHECK((n + 1 - n) == Dim(1));
  CHECK((2 * n + 4).str() == "2*N + 4");
  CHECK((n - m).str() == "-M + N");
  CHECK(Dim::parse("2*N + 4") == 2 * n + 4);
}

TEST_CASE("division keeps what it can prove and stays opaque otherwise") {
  Dim n = Dim::symbol("N");
  CHECK(Dim::floor_div(4 * n + 6, 2) == 2 * n + 3);
  CHECK(Dim::floor_div(4 * n + 1, 2).str() == "2*N");
  CHECK(Dim::floor_div(6 * n, n) == Dim(6));
  CHECK(Dim::floor_div(n + 1, 2).str() == "floordiv(N + 1, 2)");
  CHECK(Dim::floor_div(Dim(-7), Dim(2)) == Dim(-4));
  CHECK(Dim::mod(4 * n + 2, 4) == Dim(2));
  CHECK(Dim::floor_div(n - 1, 2).eval({{"N", 0}}) == -1);
}

TEST_CASE("text round-trips") {
  for (const char* text : {"7", "-3", "N", "2*N*M - 1", "floordiv(N + 1, 2) + min(M, N)", "max(1, N)"}) {
    Dim d = Dim::parse(text);
    CHECK(Dim::parse(d.str()) == d);
  }
  for (const char* text : {"", "2*", "N M", "f(N)", "floordiv(N)", "1x", "(N)"})
    CHECK_THROWS_AS(Dim::parse(text), Error);
}

TEST_CASE("queries answer unknown unless proved") {
  SymbolRanges ranges{{"N", {1, 64}}, {"M", {0, INT64_MAX}}};
  Dim n = Dim::symbol("N"), m = Dim::symbol("M");
  CHECK(equal(n, m, ranges) == Tri::unknown);
  CHECK(equal(n, Dim(0), ranges) == Tri::no);
  CHECK(at_most(n, Dim(64), ranges) == Tri::yes);
  CHECK(at_most(m, Dim(64), ranges) == Tri::unknown);
  CHECK(at_most(n + 64, n, ranges) == Tri::no);
  CHECK(divisible_by(8 * m, 4, ranges) == Tri::yes);
  CHECK(divisible_by(8 * m + 1, 4, ranges) == Tri::no);
  CHECK(divisible_by(m, 4, ranges) == Tri::unknown);
  // A quotient of sizes is no less than 0: a divisor of 0 has no value.
  CHECK(Dim::floor_div(n + 1, m).range(ranges).min == 0);
  CHECK(at_most(Dim(0), Dim::floor_div(m, 3 * m * n + m), ranges) == Tri::yes);
  CHECK(Dim::floor_div(m - 1, m).range(ranges).min == -1);
}

TEST_CASE("overflow is refused, zero absorbs") {
  CHECK_THROWS_AS(Dim(INT64_MAX) + Dim(1), Error);
  CHECK_THROWS_AS(element_count(Dims{INT64_MAX, 2}), Error);
  CHECK(element_count(Dims{INT64_MAX, 0, 2}) == 0);
  CHECK_THROWS_AS(element_count(Dims{2, -1}), Error);

  // The least integer over -1 has no value, not even as a coefficient.
  expect_error(ErrorCode::limit, {"dimension overflow"},
               [] { Dim::parse("floordiv(-9223372036854775807*N - N, -1*N)"); });
  CHECK(Dim::parse("floordiv(6*N*M, -1*N)") == Dim::parse("-6*M"));
}

TEST_CASE("bounds of huge coefficients stay bounds") {
  SymbolRanges ranges;
  std::string text;
  for (const char* symbol : {"A", "B", "C", "D", "E"}) {
    ranges[symbol] = {0, int64_t{1} << 62};
    append(text, cat(text.empty() ? "" : " + ", "9223372036854775807*", symbol));
  }
  const Dim sum = Dim::parse(text);
  CHECK(sum.range(ranges) == Range{0, INT64_MAX});
  CHECK((-sum).range(ranges) == Range{INT64_MIN, 0});
  CHECK(equal(sum, Dim(0), ranges) == Tri::unknown);
}
