// SPDX-License-Identifier: Apache-2.0
// Packed orders undone without the library, and weights whose plain bytes come late.
#include "runtime/packed_order.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "runtime/late_weights.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::runtime;

namespace {

std::vector<float> unpacked(const char* order, const std::vector<float>& packed, size_t count) {
  std::vector<float> plain(count, -1);
  REQUIRE(is_invertible(order, packed.size() * 4, count * 4));
  unpack(order, std::as_bytes(std::span(packed)), reinterpret_cast<std::byte*>(plain.data()));
  return plain;
}

}  // namespace

TEST_CASE("blocks, padding and transposition are undone") {
  // [3,2] with the first axis padded to a block of 4.
  CHECK(unpacked("onednn 3.7 3[3,2][2,1] 3[4,2][8,4] 4of0", {1, 3, 5, 0, 2, 4, 6, 0}, 6) ==
        std::vector<float>{1, 2, 3, 4, 5, 6});
  // The plain side is read transposed.
  CHECK(unpacked("onednn 3.7 3[2,3][1,2] 3[2,3][3,1]", {1, 3, 5, 2, 4, 6}, 6) ==
        std::vector<float>{1, 2, 3, 4, 5, 6});
  // Two inner blocks of one axis around another: 2of0 2of1 2of0 over [4,2].
  CHECK(unpacked("onednn 3.7 3[4,2][2,1] 3[4,2][8,8] 2of0 2of1 2of0", {0, 2, 1, 3, 4, 6, 5, 7}, 8) ==
        std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(unpacked("onednn 3.7 3[2][1] 3[2][1]", {7, 8}, 2) == std::vector<float>{7, 8});
}

TEST_CASE("orders that change bits, or that do not fit the bytes, cannot be undone") {
  CHECK_FALSE(is_invertible("winograd 2x2 64", 64, 36));
  CHECK_FALSE(is_invertible("onednn 3.7 3[3,2][2,1] 2[3,2][2,1]", 12, 24));  // rounded to bf16
  CHECK_FALSE(is_invertible("onednn 3.7 3[3,2][2,1] 3[4,2][8,4] 4of0", 24, 24));
  CHECK_FALSE(is_invertible("onednn 3.7 3[3,2][2,1] 3[4,2][8,4] 4of0", 32, 20));
  CHECK_FALSE(is_invertible("onednn 3.7 3[3,2][2,1] 3[4,2][8,4] 4of7", 32, 24));
  CHECK_FALSE(is_invertible("onednn 3.7 3[3,2][9000,1] 3[4,2][8,4] 4of0", 32, 24));
  CHECK_FALSE(is_invertible("onednn 3.7 3[3,2][2,1] 3[4,2][8,4] 0of0", 32, 24));
  CHECK_FALSE(is_invertible("onednn 3.7 3[3,2][2,1] 3[4,2][8,4] 4of0 and more", 32, 24));
  CHECK_FALSE(is_invertible("", 32, 24));
}

TEST_CASE("late weights take an address at once and their bytes when they are needed") {
  LateWeights& late = LateWeights::instance();
  const size_t before = late.open_bytes();
  int filled = 0;
  Blob blob = late.reserve(10000, [&](void* to) {
    ++filled;
    std::memset(to, 7, 10000);
  });
  CHECK(late.open_bytes() == before + 10000);
  late.ready(&filled);  // of somebody else
  late.ready(nullptr);
  CHECK(filled == 0);
  late.ready(blob.bytes.data() + 9999);
  late.ready(blob.bytes.data());
  CHECK(filled == 1);
  CHECK(blob.bytes[9999] == std::byte{7});
  CHECK(late.open_bytes() == before);
  Blob broken = late.reserve(64, [](void*) { fail(ErrorCode::bad_format, "damaged"); });
  for (int i = 0; i < 2; ++i)
    test::expect_error(ErrorCode::bad_format, {"damaged"}, [&] { late.ready(broken.bytes.data()); });
  broken = {};
  CHECK(late.open_bytes() == before);
}
