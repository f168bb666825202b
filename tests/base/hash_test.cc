// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <doctest/doctest.h>

#include <string>

using namespace pelton;

TEST_CASE("SHA-256 matches the published vectors") {
  CHECK(sha256("").str() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc").str() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256(std::string(1000000, 'a')).str() ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 in pieces equals SHA-256 at once") {
  Sha256 h;
  h.update("ab");
  h.update("");
  h.update("c");
  CHECK(h.finish() == sha256("abc"));
}

TEST_CASE("the checksum is XXH3-128 and changes with every flipped bit") {
  CHECK(checksum("").str() == "99aa06d3014798d86001c324468d497f");
  std::string text(300, 'p');
  Checksum before = checksum(text);
  for (size_t bit = 0; bit < text.size() * 8; bit += 7) {
    std::string damaged = text;
    damaged[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    CHECK(checksum(damaged) != before);
  }
}
