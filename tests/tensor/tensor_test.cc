// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "tensor/float_types.h"
#include "tensor/tensor.h"

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

TEST_CASE("integers saturate from double and wrap from int") {
  Tensor t = Tensor::zeros(DType::i8, {4});
  t.set_double(0, 300.7);
  t.set_double(1, -300);
  t.set_double(2, NAN);
  t.set_int(3, 257);
  CHECK(to_ints(t) == std::vector<int64_t>{127, -128, 0, 1});
}
