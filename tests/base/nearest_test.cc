// SPDX-License-Identifier: Apache-2.0
#include "base/nearest.h"

#include <doctest/doctest.h>

using namespace pelton;

TEST_CASE("edit distance counts insertions, removals and exchanges") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("flaw", "lawn") == 2);
}

TEST_CASE("the nearest name, unless none is near") {
  CHECK(nearest("sofmax", {"sigmoid", "softmax", "softplus"}) == "softmax");
  CHECK(nearest("xyzzy", {"sigmoid", "softmax"}) == "");
  CHECK(nearest("relu", {}) == "");
}
