// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "backend/cpu/harness.h"
#include "base/cat.h"
#include "ir/text.h"

using namespace pelton;
using namespace pelton::test;

namespace {

std::string unary(const std::string& op, const std::string& type, const Dims& dims,
                  const std::string& result = "") {
  const std::string t = cat(type, dims);
  return cat("graph \"g\"(%x: ", t, ") { %y = ", op, "(%x) : ", result.empty() ? t : cat(result, dims),
             " return %y }");
}
std::string binary(const std::string& op, const std::string& type, const Dims& a, const Dims& b,
                   const Dims& out, const std::string& result = "") {
  return cat("graph \"g\"(%a: ", type, a, ", %b: ", type, b, ") { %y = ", op,
             "(%a, %b) : ", result.empty() ? type : result, out, " return %y }");
}
Tensor specials(DType t) {
  return from_doubles(t, {12}, {0.0, -0.0, 1e-40, -1e-40, INFINITY, -INFINITY, NAN, 88.8, -104, 1, -1, 0.5});
}

}  // namespace

TEST_CASE("unary float ops over random values and special ones") {
  const char* ops[] = {"exp",   "log",   "sqrt",   "rsqrt",      "tanh",  "erf",  "sigmoid", "sin",
                       "cos",   "log1p", "neg",    "abs",        "sign",  "relu", "floor",   "ceil",
                       "round", "trunc", "square", "reciprocal", "expm1", "atan", "softplus"};
  for (const char* op : ops)
    for (const char* type : {"f32", "bf16", "f16", "f64"}) {
      const DType t = *dtype_from_name(type);
      CAPTURE(op);
      for (int64_t n : {0, 1, 7, 64, 1000})
        check_node(unary(op, type, {n}), {random(t, {n}, static_cast<uint64_t>(n) + 1, -8, 8)}, {});
      check_node(unary(op, type, {12}), {specials(t)});
    }
}

TEST_CASE("binary ops broadcast") {
  struct Case {
    Dims a, b, out;
  };
  const Case cases[] = {{{5}, {5}, {5}},
                        {{3, 1}, {4}, {3, 4}},
                        {{2, 3, 4, 5}, {3, 1, 1}, {2, 3, 4, 5}},
                        {{2, 300}, {300}, {2, 300}},
                        {{7, 1, 33}, {1, 5, 1}, {7, 5, 33}},
                        {{}, {3, 3}, {3, 3}},
                        {{0, 3}, {3}, {0, 3}},
                        {{2, 3, 40, 41}, {2, 3, 1, 1}, {2, 3, 40, 41}},
                        {{1}, {1}, {1}},
                        {{64, 1}, {1, 2000}, {64, 2000}}};
  for (const Case& c : cases)
    for (const char* op : {"add", "sub", "mul", "div", "max", "min", "mod", "pow"})
      for (const char* type : {"f32", "bf16", "f64", "i64", "i32", "i8", "u8"}) {
        const DType t = *dtype_from_name(type);
        const std::string name = op;
        if (name == "pow" && !is_float(t)) continue;
        const double low = name == "pow" ? 0.1 : is_unsigned_int(t) ? 0 : -2, high = is_float(t) ? 2 : 120;
        check_node(binary(op, type, c.a, c.b, c.out),
                   {random(t, c.a, 3, low, high), random(t, c.b, 4, low, high)});
      }
}

TEST_CASE("comparisons, logic and select") {
  for (const char* op : {"eq", "ne", "lt", "le", "gt", "ge"})
    for (const char* type : {"f32", "f16", "i64", "u8", "f64"}) {
      const DType t = *dtype_from_name(type);
      check_node(binary(op, type, {4, 70}, {70}, {4, 70}, "bool"),
                 {random(t, {4, 70}, 5, 0, 3), random(t, {70}, 6, 0, 3)});
    }
  for (const char* op : {"and", "or", "xor", "eq"})
    check_node(binary(op, "bool", {3, 50}, {3, 1}, {3, 50}, "bool"),
               {random(DType::boolean, {3, 50}, 1, 0, 2), random(DType::boolean, {3, 1}, 2, 0, 2)});
  for (const char* type : {"f32", "bf16", "i64", "bool", "f64"}) {
    const DType t = *dtype_from_name(type);
    check_node(
        cat("graph \"g\"(%c: bool[2,1,9], %a: ", type, "[5,9], %b: ", type,
            "[1]) { %y = select(%c, %a, %b) : ", type, "[2,5,9] return %y }"),
        {random(DType::boolean, {2, 1, 9}, 1, 0, 2), random(t, {5, 9}, 2, 0, 2), random(t, {1}, 3, 0, 2)});
  }
}

TEST_CASE("casts follow the op's rules") {
  for (const char* from : {"f32", "f16", "bf16", "f64", "i64", "i32", "i8", "u8", "bool"})
    for (const char* to : {"f32", "f16", "bf16", "f64", "i64", "i32", "i16", "i8", "u32", "u8", "bool"}) {
      const DType t = *dtype_from_name(from);
      Tensor x = is_float(t) ? from_doubles(t, {8}, {0, -0.5, 1.5, -3.7, 300, -300, NAN, 1e10})
                             : random(t, {8}, 9, t == DType::boolean || is_unsigned_int(t) ? 0 : -300,
                                      t == DType::boolean ? 2 : 300);
      const Dims dims = {8};
      const std::string text = cat("graph \"g\"(%x: ", from, dims, ") { %y = cast(%x) {to = ", to, "} : ", to,
                                   dims, " return %y }");
      CAPTURE(text);
      const ir::Graph g = ir::parse_graph(text);
      const Tensor got = run_on_cpu(g, {x})[0];
      const Tensor want = interp::run(g, {x}).outputs[0].tensor;
      CHECK(got.same_bytes(want));
    }
}

TEST_CASE("layouts are walked in place") {
  for (const char* layout : {"nhwc", "c8", "c16"}) {
    const Dims d = {2, 16, 3, 5};
    const std::string t = cat("f32", d, "{", layout, "}");
    check_node(cat("graph \"g\"(%a: ", t, ", %b: ", t, ") { %y = add(%a, %b) : ", t, " return %y }"),
               {random(DType::f32, d, 1), random(DType::f32, d, 2)});
    check_node(cat("graph \"g\"(%a: ", t, ", %b: f32[16,1,1]) { %y = mul(%a, %b) : ", t, " return %y }"),
               {random(DType::f32, d, 1), random(DType::f32, {16, 1, 1}, 2)});
  }
}
