// SPDX-License-Identifier: Apache-2.0
#include "base/json_number.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "support/expect_error.h"

using namespace pelton;
using test::expect_error;

TEST_CASE("whole numbers of JSON: any form of them, and nothing else") {
  auto of = [](const char* text) { return json_integer(nlohmann::json::parse(text)); };
  CHECK(of("-7") == -7);
  CHECK(of("7.0") == 7);
  CHECK(of("9223372036854775807") == INT64_MAX);
  CHECK(json_integer(nlohmann::ordered_json::parse("12")) == 12);
  for (const char* bad : {"7.5", "1e300", "-1e300", "9223372036854775808", "true", "\"7\"", "null", "[7]"})
    expect_error(ErrorCode::bad_format, {"expected a whole number, got"}, [&] { of(bad); });
  CHECK(json_unsigned(nlohmann::json::parse("18446744073709551615")) == UINT64_MAX);
  CHECK(json_unsigned(nlohmann::json::parse("3.0")) == 3);
  for (const char* bad : {"-1", "1e300", "0.5", "{}"})
    expect_error(ErrorCode::bad_format, {"whole number"}, [&] { json_unsigned(nlohmann::json::parse(bad)); });
  CHECK(json_integers(nlohmann::json::parse("[1, 2]")) == std::vector<int64_t>{1, 2});
  expect_error(ErrorCode::bad_format, {"a list of whole numbers, got 3"},
               [] { json_integers(nlohmann::json(3)); });
}
