// SPDX-License-Identifier: Apache-2.0
#include "codegen/lower.h"

#include <doctest/doctest.h>

#include <limits>

#include "codegen/interpret.h"
#include "interp/interpreter.h"
#include "ir/op.h"
#include "kernel_ir/groups.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::codegen;

namespace {

codegen::Kernel kernel_of(const ir::Graph& g, const LowerOptions& options = {}) {
  Lowered lowered = lower(g, "k", options);
  INFO(lowered.reason);
  REQUIRE(lowered.kernel);
  return *lowered.kernel;
}
std::string reason(const char* text) {
  Lowered lowered = lower(ir::parse_graph(text), "k");
  CHECK(!lowered.kernel);
  return lowered.reason;
}

void check_close(const Tensor& got, const Tensor& want, double rtol, double atol) {
  REQUIRE(got.dtype() == want.dtype());
  REQUIRE(got.dims() == want.dims());
  for (int64_t i = 0; i < want.count(); ++i) {
    CAPTURE(i);
    if (!is_float(want.dtype())) {
      CHECK(got.get_int(i) == want.get_int(i));
      continue;
    }
    double a = got.get_double(i), b = want.get_double(i);
    CAPTURE(a);
    CAPTURE(b);
    CHECK((std::isnan(b) ? std::isnan(a) : a == b || std::fabs(a - b) <= atol + rtol * std::fabs(b)));
  }
}

}  // namespace

TEST_CASE("kernels agree with the graph interpreter, also through their text") {
  for (const test::Group& group : test::groups()) {
    CAPTURE(group.name);
    ir::Graph g = ir::parse_graph(group.text);
    codegen::Kernel k = kernel_of(g);
    std::string text = print(k);
    CAPTURE(text);
    codegen::Kernel parsed = parse_kernel(text);
    CHECK(print(parsed) == text);
    for (const SymbolValues& sizes : group.sizes) {
      std::vector<Tensor> inputs = test::inputs_of(g, sizes);
      auto want = interp::run(g, {inputs.begin(), inputs.end()}).outputs;
      auto got = interpret(parsed, inputs, sizes);
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < got.size(); ++i) check_close(got[i], want[i].tensor, group.rtol, group.atol);
    }
  }
}

TEST_CASE("quantisation in kernels: half to even, saturation, NaN, and what f32 does not hold") {
  ir::Graph g = ir::parse_graph(R"(graph "g"(%x: f32[8]) {
    %s = constant() {value = tensor<f32[]>{2}} : f32[]
    %z = constant() {value = tensor<i8[]>{3}} : i8[]
    %0 = quantize(%x, %s, %z) {to = i8} : i8[8]
    return %0
  })");
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const Tensor x = from_doubles(DType::f32, {8}, {1, 3, 5, -1, nan, inf, -inf, 1e9});
  const Tensor got = interpret(kernel_of(g), {x}, {})[0];
  const int64_t want[] = {3, 5, 5, 3, 3, 127, -128, 127};
  for (int64_t i = 0; i < 8; ++i) CHECK(got.get_int(i) == want[i]);
  CHECK(reason("graph \"g\"(%x: f64[4], %s: f64[]) { %0 = quantize(%x, %s) {to = i8} : i8[4] return %0 }") !=
        "");
  CHECK(reason("graph \"g\"(%x: f32[4], %s: f32[2]) { %0 = quantize(%x, %s) {axis = 0, block = 2, to = i8} : "
               "i8[4] return %0 }") != "");
}

TEST_CASE("strict kernels round as ops that run alone") {
  ir::Graph g = ir::parse_graph(R"(graph "g"(%x: f16[64]) {
    %0 = exp(%x) : f16[64]
    %1 = mul(%0, %0) : f16[64]
    %2 = sub(%1, %0) : f16[64]
    return %2
  })");
  std::vector<Tensor> inputs = test::inputs_of(g, {});
  Tensor want = interp::run(g, {inputs.begin(), inputs.end()}).outputs[0].tensor;
  CHECK(interpret(kernel_of(g, {.strict = true}), inputs, {})[0].same_bytes(want));
  CHECK(!interpret(kernel_of(g), inputs, {})[0].same_bytes(want));
}

TEST_CASE("a row's reductions come before the loop over it, once each") {
  ir::Graph g = ir::parse_graph(R"(graph "g"(%x: f32[N,C]) {
    symbol N in [0, 9]
    symbol C in [1, 9]
    %0 = softmax(%x) : f32[N,C]
    return %0
  })");
  CHECK(print(kernel_of(g)) == R"(kernel "k"(C, N) {
  in x0: f32[N, C]
  out y0: f32[N, C]
  loop i0 < N grid {
    %0: f32 = reduce max i2 < C {
      %1: f32 = load x0[i0, i2]
      yield %1
    }
    %2: f32 = reduce sum i3 < C {
      %3: f32 = load x0[i0, i3]
      %4: f32 = sub %3 %0
      %5: f32 = exp %4
      yield %5
    }
    loop i1 < C lanes {
      %6: f32 = load x0[i0, i1]
      %7: f32 = sub %6 %0
      %8: f32 = exp %7
      %9: f32 = div %8 %2
      store y0[i0, i1] = %9
    }
  }
}
)");
}

TEST_CASE("loads of a concatenation are masked") {
  ir::Graph g = ir::parse_graph(R"(graph "g"(%x: f32[3], %y: f32[2]) {
    %0 = concat(%x, %y) {axis = 0} : f32[5]
    return %0
  })");
  std::string text = print(kernel_of(g));
  CHECK(text.find("load x0[i0] if 0 <= i0 < 3 else 0") != text.npos);
  CHECK(text.find("load x1[i0 - 3] if 0 <= i0 - 3 < 2 else 0") != text.npos);
}

TEST_CASE("what has no kernel says why") {
  auto has = [](const std::string& s, const char* part) { return s.find(part) != s.npos; };
  CHECK(has(reason(R"(graph "g"(%x: f32[2,3], %w: f32[3,4]) {
    %0 = matmul(%x, %w) : f32[2,4]
    return %0
  })"),
            "op matmul"));
  CHECK(has(reason(R"(graph "g"(%x: f32[N], %y: f32[M]) {
    symbol N in [1, 9]
    symbol M in [1, 9]
    %0 = add(%x, %y) : f32[broadcast(M, N)]
    return %0
  })"),
            "broadcasts"));
  CHECK(has(reason(R"(graph "g"(%x: f32[2,3]) {
    %0 = reduce_sum(%x) {axes = [0]} : f32[3]
    %1 = reduce_sum(%x) {axes = [1]} : f32[2]
    return %0, %1
  })"),
            "in one group"));
  CHECK(has(reason(R"(graph "g"(%x: f32[3]) {
    %0 = constant() {value = tensor<f32[3]>{1, 2, 3}} : f32[3]
    %1 = add(%x, %0) : f32[3]
    return %1
  })"),
            "3 different elements"));
  // Zeros of two signs are two values.
  CHECK(has(reason(R"(graph "g"(%x: f32[2]) {
    %0 = constant() {value = tensor<f32[2]>{0, -0}} : f32[2]
    %1 = div(%x, %0) : f32[2]
    return %1
  })"),
            "2 different elements"));
  CHECK(has(reason(R"(graph "g"(%x: f32[4], %y: f32[5]) {
    %0 = neg(%x) : f32[4]
    %1 = neg(%y) : f32[5]
    return %0, %1
  })"),
            "4 and 5 elements"));
  CHECK(has(reason(R"(graph "g"(%x: i4[4]) {
    %0 = cast(%x) {to = f32} : f32[4]
    return %0
  })"),
            "elements of i4"));
}

TEST_CASE("bad kernel text is refused with its line") {
  auto refuse = [](const char* text, std::initializer_list<const char*> words) {
    test::expect_error(ErrorCode::bad_format, words, [&] { parse_kernel(text); });
  };
  refuse("kernel \"k\"() {\n  in x0: f32[3]\n  %0: f32 = load x1[0]\n}", {"no buffer 'x1'", "line 3"});
  refuse("kernel \"k\"() {\n  %0: f32 = neg %1\n}", {"%1 is not defined", "line 2"});
  refuse("kernel \"k\"() {\n  out y0: f32[3]\n  loop i < 3 grid {\n", {"found the end"});
  refuse("kernel \"k\"() {\n  %0: f99 = constant 1\n}", {"no type 'f99'"});
  test::expect_error(ErrorCode::unsupported_op, {"nearest name is 'neg'"},
                     [] { parse_kernel("kernel \"k\"() {\n  %0: f32 = constant 1\n  %1: f32 = ngg %0\n}"); });
}

TEST_CASE("kernels that make no sense do not verify") {
  auto refuse = [](const char* text, std::initializer_list<const char*> words) {
    test::expect_error(ErrorCode::internal, words, [&] { parse_kernel(text); });
  };
  refuse("kernel \"k\"() {\n  in x0: f32[3]\n  %0: f32 = load x0[i]\n}", {"uses i"});
  refuse("kernel \"k\"() {\n  in x0: f32[3]\n  %0: f32 = load x0[0, 0]\n}",
         {"2 indices for buffer x0 of rank 1"});
  refuse("kernel \"k\"() {\n  in x0: f32[3]\n  %0: f64 = load x0[0]\n}", {"load of x0 as f64"});
  refuse("kernel \"k\"() {\n  in x0: f32[3]\n  %0: f32 = load x0[0]\n  store x0[0] = %0\n}",
         {"store to input x0"});
  refuse("kernel \"k\"() {\n  out y0: f32[3]\n  %0: f64 = constant 1\n  store y0[0] = %0\n}",
         {"of another type"});
  refuse("kernel \"k\"() {\n  %0: f32 = constant 1\n  %1: f32 = add %0\n}", {"add of 1 operands"});
  refuse("kernel \"k\"() {\n  %0: f32 = constant 1\n  %1: f32 = eq %0 %0\n}", {"eq yields bool"});
  refuse("kernel \"k\"(N) {\n  loop i < N grid {\n    loop i < N lanes {\n    }\n  }\n}",
         {"variable i is defined twice"});
  refuse("kernel \"k\"(N) {\n  loop i < N grid {\n    %0: f32 = constant 1\n  }\n  %1: f32 = neg %0\n}",
         {"used before it is defined"});
}
