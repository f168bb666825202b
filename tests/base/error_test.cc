// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <doctest/doctest.h>

#include "base/cat.h"

using namespace pelton;

TEST_CASE("places nest, and of a long chain the ends stay") {
  Error e(ErrorCode::bad_shape, "no", "node 'a'", "");
  CHECK(e.within("").where() == "node 'a'");
  CHECK(e.within("m.onnx").where() == "m.onnx: node 'a'");
  for (int i = 0; i < 1000; ++i) e = e.within(cat("call ", i));
  e = e.within("m.onnx");
  const std::string_view where = e.where();
  CHECK(where.size() < 400);
  CHECK(where.starts_with("m.onnx: "));
  CHECK(where.ends_with(": node 'a'"));
  CHECK(where.find("...") != where.npos);
}
