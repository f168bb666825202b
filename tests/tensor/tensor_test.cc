// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include "tensor/float_types.h"
#include "tensor/narrow.h"
#include "tensor/tensor.h"
#include "tensor/transpose.h"

using namespace pelton;

TEST_CASE("copies share storage and writing separates them") {
  Tensor a = Tensor::from<float>({2, 2}, {1, 2, 3, 4});
  Tensor b = a;
  CHECK(a.data() == b.data());
  b.as_mutable<float>()[0] = 9;
  CHECK(a.as<float>()[0] == 1);
  CHECK(b.as<float>()[0] == 9);
}

TEST_CASE("sub-byte elements are packed from the low bits") {
  Tensor t = from_ints(DType::i4, {3}, {-8, 7, -1});
  CHECK(t.bytes() == 2);
  auto bytes = static_cast<const uint8_t*>(t.data());
  CHECK(bytes[0] == 0x78);
  CHECK((bytes[1] & 0xf) == 0xf);
  CHECK(to_ints(t) == std::vector<int64_t>{-8, 7, -1});
}

TEST_CASE("every 8-bit float pattern survives a round trip") {
  for (DType t : {DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz, DType::f8e8m0})
    for (uint32_t bits = 0; bits < 256; ++bits) {
      double v = small_float_to_double(t, bits);
      if (std::isnan(v)) {
        CHECK(std::isnan(small_float_to_double(t, small_float_from_double(t, v, false))));
      } else {
        CHECK_MESSAGE(small_float_from_double(t, v, false) == bits, name(t), " pattern ", bits);
      }
    }
}

TEST_CASE("conversion rounds to even, overflows by the format's own rule") {
  // On bits as by definition: every f16, and f32 around every boundary between two of them.
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    auto h = static_cast<uint16_t>(bits);
    double exact = small_float_to_double(DType::f16, bits);
    REQUIRE((std::isnan(exact) ? std::isnan(f16_to_float(h)) : f16_to_float(h) == exact));
    if (std::isnan(exact)) continue;
    double next = small_float_to_double(DType::f16, bits + 1);
    auto middle = static_cast<float>(std::isfinite(next) ? (exact + next) / 2 : exact);
    for (float v : {f16_to_float(h), middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)})
      REQUIRE(f16_from_float(v) == small_float_from_double(DType::f16, v, false));
  }
  CHECK(f16_from_float(65519.0f) == 0x7bff);
  CHECK(f16_from_float(65520.0f) == 0x7c00);
  CHECK(small_float_from_double(DType::f8e4m3fn, 1000, false) == 0x7f);
  CHECK(small_float_from_double(DType::f8e4m3fn, 1000, true) == 0x7e);
  CHECK(small_float_from_double(DType::f8e4m3fnuz, -0.0, false) == 0);
  CHECK(small_float_from_double(DType::f4e2m1, 2.5, false) == 0x4);
  CHECK(small_float_from_double(DType::f4e2m1, -100, false) == 0xf);
  CHECK(bf16_from_float(1.00390625f) == 0x3f80);
}

TEST_CASE("whole tensors are narrowed to the bits that each number is") {
  std::vector<float> values;
  for (uint32_t high = 0; high < 0x10000; ++high)
    for (uint32_t low : {0u, 0x0fffu, 0x1000u, 0x1001u, 0xffffu})
      values.push_back(std::bit_cast<float>(high << 16 | low));
  values.resize(values.size() - 3);  // no multiple of what goes at a time
  const Tensor wide = Tensor::from<float>({std::ssize(values)}, values);
  const Tensor half = narrowed(wide, DType::f16), brain = narrowed(wide, DType::bf16);
  for (size_t i = 0; i < values.size(); ++i) {
    REQUIRE(static_cast<const uint16_t*>(half.data())[i] == f16_from_float(values[i]));
    REQUIRE(static_cast<const uint16_t*>(brain.data())[i] == bf16_from_float(values[i]));
  }
}

TEST_CASE("a transpose is told from what is one but for an element") {
  constexpr int64_t kRows = 700, kColumns = 1100;  // many pieces of work
  std::vector<int64_t> values;
  for (int64_t i = 0; i < kRows * kColumns; ++i) values.push_back(i * 7919 % 100003);
  const Tensor a = from_ints(DType::i32, {kRows, kColumns}, values), b = transposed(a);
  CHECK(b.dims() == Dims{kColumns, kRows});
  CHECK(b.get_int(5 * kRows + 600) == a.get_int(600 * kColumns + 5));
  CHECK(is_transpose(a, b));
  for (int64_t at : {int64_t{0}, kRows * kColumns / 2, kRows * kColumns - 1}) {
    Tensor c = b;
    c.set_int(at, b.get_int(at) + 1);
    CHECK(!is_transpose(a, c));
  }
  CHECK(!is_transpose(a, a));
}

TEST_CASE("integers saturate from double and wrap from int") {
  Tensor t = Tensor::zeros(DType::i8, {4});
  t.set_double(0, 300.7);
  t.set_double(1, -300);
  t.set_double(2, NAN);
  t.set_int(3, 257);
  CHECK(to_ints(t) == std::vector<int64_t>{127, -128, 0, 1});
}
