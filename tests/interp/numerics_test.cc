// SPDX-License-Identifier: Apache-2.0
#include "interp/numerics.h"

#include <doctest/doctest.h>

#include <cmath>

#include "interp/interpreter.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::interp;

TEST_CASE("the unit in the last place of each type") {
  CHECK(ulp(DType::f64, 1) == std::ldexp(1, -52));
  CHECK(ulp(DType::f32, 1) == std::ldexp(1, -23));
  CHECK(ulp(DType::f32, -3.9) == std::ldexp(1, -22));
  CHECK(ulp(DType::f32, 0) == std::ldexp(1, -149));
  CHECK(ulp(DType::f32, 1e-42) == std::ldexp(1, -149));
  CHECK(ulp(DType::f16, 2047) == 1);
  CHECK(ulp(DType::bf16, 256) == 2);
  CHECK(ulp(DType::f8e4m3fn, 8) == 1);
  CHECK(ulp(DType::f8e5m2, 8) == 2);
  CHECK(ulp(DType::i32, 8) == 0);
}

TEST_CASE("the exact form computes in f64, sub-graphs and state too") {
  ir::Graph g = ir::parse_graph(R"(graph "g"(%x: f32[2], %n: i64[]) {
    slot %s statistic "s" : bf16[] = tensor<bf16[]>{1}
    %0 = constant() {value = tensor<f32[]>{0.1}} : f32[]
    %1 = mul(%x, %0) : f32[2]
    %2 = cast(%1) {to = f16} : f16[2]
    %3 = loop(%n, _, %2) {body = graph "b"(%i: i64[], %c: bool[], %v: f16[2]) {
      %w = add(%v, %v) : f16[2]
      return %c, %w
    }, carried = 1} : f16[2]
    %4 = layer_norm(%3) : f16[2]
    %5 = cast(%s) {to = f16} : f16[]
    %6 = add(%3, %5) : f16[2]
    next %s = %s
    return %4, %6
  })");
  ir::Graph exact = exact_form(g);
  ir::verify(exact);
  CHECK(exact.type(exact.outputs[0]).str() == "f64[2]");
  CHECK(exact.slots[0].type.dtype == DType::f64);
  Tensor x = Tensor::from<float>({2}, {0.3f, -0.7f});
  auto run_both = run(exact, {exact_input(x), Tensor::scalar<int64_t>(3)}).outputs;
  double factor = static_cast<double>(0.1f) * 8;
  CHECK(run_both[1].tensor.get_double(0) == static_cast<double>(0.3f) * factor + 1);
  test::expect_error(ErrorCode::bad_type, {"bitcast", "no f64 form"}, [] {
    exact_form(
        ir::parse_graph("graph \"g\"(%x: f32[2]) {\n%0 = bitcast(%x) {to = i32} : i32[2]\nreturn %0\n}"));
  });
}

TEST_CASE("acceptance: twice the straightforward error and one unit") {
  Tensor exact = Tensor::from<double>({3}, {1, 2, 1e-3});
  Tensor straight = Tensor::from<float>({3}, {1.0f, 2.0f + 4e-6f, 1e-3f});
  double base = static_cast<double>(straight.as<float>()[1]) - 2, unit = ulp(DType::f32, 2);
  auto with = [&](double second) { return Tensor::from<float>({3}, {1, static_cast<float>(second), 1e-3f}); };
  Acceptance good = accept(with(2 - 2 * base), exact, straight);
  CHECK(good.accepted);
  CHECK(good.allowed == 2 * base + unit);
  Acceptance bad = accept(with(2 - 2 * base - 3 * unit), exact, straight);
  CHECK(!bad.accepted);
  CHECK(bad.worst == 1);
  CHECK(bad.reason.find("element 1 is off by") == 0);
}

TEST_CASE("acceptance: special values, integers and shapes") {
  Tensor exact = Tensor::from<double>({3}, {NAN, INFINITY, 1e39}),
         straight = Tensor::from<float>({3}, {NAN, INFINITY, INFINITY});
  CHECK(accept(straight, exact, straight).accepted);
  CHECK(!accept(Tensor::from<float>({3}, {0, INFINITY, INFINITY}), exact, straight).accepted);
  CHECK(!accept(Tensor::from<float>({3}, {NAN, -INFINITY, INFINITY}), exact, straight).accepted);
  CHECK(!accept(Tensor::from<float>({3}, {NAN, INFINITY, 3e38f}), exact, straight).accepted);
  Tensor one = Tensor::from<double>({1}, {1}), one_f = Tensor::from<float>({1}, {1});
  CHECK(accept(Tensor::from<float>({1}, {NAN}), one, one_f).reason == "element 0 is nan, expected 1");
  Tensor i = Tensor::from<int32_t>({2}, {1, 2});
  CHECK(accept(i, i, i).accepted);
  CHECK(!accept(Tensor::from<int32_t>({2}, {1, 3}), i, i).accepted);
  CHECK(accept(one_f, exact, straight).reason.find("expected shape [3]") != std::string::npos);
}
