// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "ir/builder.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::ir;
using pelton::test::expect_error;

namespace {

const char* kText = R"(graph "main"(%x: f32[N,3], %y: i64[] @"in/put") {
  symbol N in [1, 64]
  check N <= 64 @"test"
  slot %count counter "count" : i64[] = tensor<i64[]>{7}
  %0 = constant() {value = tensor<f32[3]>{1, -0.5, 1e-20}} : f32[3]
  %1 = add(%x, %0) : f32[N,3] @"layer/add"
  %2 = reshape(%1) {dims = dims[3*N]} : f32[3*N]
  %3 = concat(%2, %2) {axis = 0} : f32[6*N]
  %4 = trilu(%1, _) {upper = false} : f32[N,3]
  %5 = constant() {value = tensor<i64[]>{1}} : i64[]
  %next = add(%count, %5) : i64[]
  next %count = %next
  may alias output 0 input 0
  return %1 @"out:0", %3, %4
}
)";

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("text parses, verifies and prints back the same") {
  Graph g = parse_graph(kText);
  verify(g);
  std::string once = print(g);
  CHECK(print(parse_graph(once)) == once);
  CHECK(once.find("%next = add(%count") != once.npos);
  CHECK(once.find("@\"in/put\"") != once.npos);
  CHECK(once.find("trilu(%") != once.npos);
}

TEST_CASE("bad text is refused with its place") {
  auto parse = [](const char* text) { return message_of([&] { parse_graph(text); }); };
  CHECK(parse("graph \"g\"(%x: f32[2]) {\n  %0 = ad(%x) : f32[2]\n  return %0\n}")
            .find("nearest name is 'add'") != std::string::npos);
  CHECK(parse("graph \"g\"(%x: f32[2]) {\n  return %z\n}").find("line 2") != std::string::npos);
  CHECK(parse("graph \"g\"(%x: f32[2]) {\n  %0 = neg(%x) : f32[3]\n  return %0\n}")
            .find("written as f32[3] but is f32[2]") != std::string::npos);
  CHECK(parse("graph \"g\"() {").find("graph text") != std::string::npos);
  CHECK(parse("graph \"g\"() {\n %0 = constant() {value = tensor<f32[1000000000]>{1}} : f32[1]")
            .find("fewer values") != std::string::npos);
}

TEST_CASE("numbers that their place cannot hold are refused, not cut") {
  auto parse = [](std::string_view type, std::string_view value) {
    parse_attrs(cat("value = tensor<", type, ">{", value, "}"));
  };
  parse("i8[3]", "-128, 127, 0");
  parse("u8[2]", "0, 255");
  parse("i32[2]", "-2147483648, 2147483647");
  parse("u64[1]", "18446744073709551615");
  expect_error(ErrorCode::bad_format, {"128 is no value of type i8", "line 1"},
               [&] { parse("i8[1]", "128"); });
  expect_error(ErrorCode::bad_format, {"-1 is no value of type u16"}, [&] { parse("u16[1]", "-1"); });
  expect_error(ErrorCode::bad_format, {"2147483648 is no value of type i32"},
               [&] { parse("i32[1]", "2147483648"); });
  expect_error(ErrorCode::bad_format, {"expected an integer"},
               [&] { parse("i64[1]", "9223372036854775808"); });
  expect_error(ErrorCode::bad_format, {"expected an integer of 0 or more"},
               [&] { parse("u64[1]", "18446744073709551616"); });
  expect_error(ErrorCode::bad_format, {"expected an integer of 0 or more"}, [&] { parse("u64[1]", "-1"); });
  expect_error(ErrorCode::bad_format, {"there is no input or output 4294967296"}, [] {
    parse_graph("graph \"g\"(%x: f32[1]) { may alias output 4294967296 input 0 return %x }");
  });
  expect_error(ErrorCode::bad_format, {"the range of 'N' is empty"},
               [] { parse_graph("graph \"g\"(%x: f32[N]) { symbol N in [4, 3] return %x }"); });
}

TEST_CASE("every attribute kind survives the text") {
  Graph body("body");
  body.symbols->ranges["N"] = {0, 9};
  ValueId x = body.add_input(Type::tensor(DType::f32, {Dim::symbol("N")}), "x");
  body.outputs = {Builder(body).op("neg", {x})};
  for (const Attr& a :
       {Attr(int64_t{-5}), Attr(2.0), Attr(std::nan("")), Attr(true), Attr(std::string("a\"b\n\x01")),
        Attr(DType::bf16), Attr(Ints{1, -2}), Attr(Floats{0.5, 1}), Attr(Strings{"x", ""}),
        Attr(Shape{Dim::symbol("N") + 1, 2}), Attr(Tensor::from<bool>({2}, {true, false}))})
    CHECK(print(a).size() > 0);
  CHECK(print(Attr(2.0)) == "2.0");
  CHECK(print(Attr(std::string("a\"b\n\x01"))) == "\"a\\\"b\\n\\x01\"");
}
