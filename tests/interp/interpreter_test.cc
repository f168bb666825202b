// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <ctime>

#include "interp/interpreter.h"
#include "ir/builder.h"
#include "ir/text.h"

using namespace pelton;
using namespace pelton::ir;

namespace {

std::vector<HostValue> run_text(const char* text, std::vector<HostValue> inputs) {
  return interp::run(parse_graph(text), inputs).outputs;
}

}  // namespace

TEST_CASE("pointwise broadcast, types and special values") {
  auto out = run_text(R"(graph "g"(%a: f32[2,1], %b: f32[3]) {
    %0 = add(%a, %b) : f32[2,3]
    %1 = max(%a, %b) : f32[2,3]
    return %0, %1
  })",
                      {Tensor::from<float>({2, 1}, {1, NAN}), Tensor::from<float>({3}, {10, 20, -0.0f})});
  CHECK(to_doubles(out[0].tensor)[1] == 21);
  CHECK(std::isnan(to_doubles(out[1].tensor)[3]));
}

TEST_CASE("roi_align refuses a box that would take hours to sample") {
  const char* text = R"(graph "g"(%x: f32[1,1,4,4], %b: f32[1,4], %i: i64[1]) {
    %0 = roi_align(%x, %b, %i) {height = 2, width = 2} : f32[1,1,2,2]
    return %0
  })";
  const auto run = [&](float right) {
    return run_text(text, {Tensor::zeros(DType::f32, {1, 1, 4, 4}),
                           Tensor::from<float>({1, 4}, {0, 0, right, 2}), from_ints(DType::i64, {1}, {0})});
  };
  CHECK(run(3)[0].tensor.count() == 4);
  CHECK(to_doubles(run(-3)[0].tensor) == std::vector<double>(4, 0));
  for (float right : {1e30f, INFINITY, NAN})
    CHECK_THROWS_WITH_AS(run(right), doctest::Contains("box 0 has cells of"), Error);
}

TEST_CASE("roi_align walks through the samples that lie in the image") {
  // 4000 by 4000 samples a cell, at whole numbers from -100 on: those from -1 to 4 are in reach.
  const Tensor ones = from_doubles(DType::f32, {1, 512, 4, 4}, std::vector<double>(512 * 16, 1));
  const std::clock_t begin = std::clock();
  auto out = run_text(
      R"(graph "g"(%x: f32[1,512,4,4], %b: f32[1,4], %i: i64[1]) {
    %0 = roi_align(%x, %b, %i) {height = 2, width = 2} : f32[1,512,2,2]
    return %0
  })",
      {ones, Tensor::from<float>({1, 4}, {-100, -100, 7900, 7900}), from_ints(DType::i64, {1}, {0})});
  CHECK(std::clock() - begin < 5 * CLOCKS_PER_SEC);  // minutes, were they all looked at
  const std::vector<double> cells = to_doubles(out[0].tensor);
  CHECK(cells[0] == doctest::Approx(36.0 / 16e6));
  for (int i = 1; i < 4; ++i) CHECK(cells[i] == 0);
}

TEST_CASE("a result that no memory holds is refused before anything is laid out for it") {
  const char* text = R"(graph "g"(%x: f32[1]) {
    %0 = broadcast_to(%x) {dims = dims[1000000000000, 4]} : f32[1000000000000,4]
    return %0
  })";
  CHECK_THROWS_WITH_AS(run_text(text, {Tensor::from<float>({1}, {2})}),
                       doctest::Contains("a result of shape [1000000000000,4] takes 16000000000000 bytes"),
                       Error);
}

TEST_CASE("integers wrap, division by zero is zero") {
  auto out = run_text(R"(graph "g"(%a: i8[3], %b: i8[3]) {
    %0 = add(%a, %b) : i8[3]
    %1 = div(%a, %b) : i8[3]
    %2 = mod(%a, %b) : i8[3]
    return %0, %1, %2
  })",
                      {from_ints(DType::i8, {3}, {127, -128, -7}), from_ints(DType::i8, {3}, {1, 0, 3})});
  CHECK(to_ints(out[0].tensor) == std::vector<int64_t>{-128, -128, -4});
  CHECK(to_ints(out[1].tensor) == std::vector<int64_t>{127, 0, -2});
  CHECK(to_ints(out[2].tensor) == std::vector<int64_t>{0, 0, 2});
}

TEST_CASE("symbolic sizes are bound from the inputs and checked") {
  const char* text = R"(graph "g"(%a: f32[N,2], %b: f32[N]) {
    symbol N in [0, 100]
    %0 = reshape(%a) {dims = dims[2*N]} : f32[2*N]
    return %0
  })";
  auto out = run_text(text, {Tensor::zeros(DType::f32, {3, 2}), Tensor::zeros(DType::f32, {3})});
  CHECK(out[0].tensor.dims() == Dims{6});
  CHECK_THROWS_WITH_AS(run_text(text, {Tensor::zeros(DType::f32, {3, 2}), Tensor::zeros(DType::f32, {4})}),
                       doctest::Contains("input 'b'"), Error);
}

TEST_CASE("a convolution whose sizes are symbols is checked when they are known") {
  const char* text = R"(graph "g"(%x: f32[1,4,3], %w: f32[M,2,1]) {
    symbol M in [1, 100]
    %0 = conv(%x, %w) {groups = 2} : f32[1,M,3]
    return %0
  })";
  const Tensor x = Tensor::zeros(DType::f32, {1, 4, 3});
  auto weights = [](int64_t outputs) { return Tensor::zeros(DType::f32, {outputs, 2, 1}); };
  CHECK(run_text(text, {x, weights(6)})[0].tensor.dims() == Dims{1, 6, 3});
  CHECK_THROWS_WITH_AS(run_text(text, {x, weights(5)}), doctest::Contains("weights [5,2,1] in 2 groups"),
                       Error);
}

TEST_CASE("state slots yield their next value") {
  Graph g = parse_graph(R"(graph "g"() {
    slot %c counter "c" : i64[] = tensor<i64[]>{41}
    %0 = constant() {value = tensor<i64[]>{1}} : i64[]
    %1 = add(%c, %0) : i64[]
    next %c = %1
    return %c
  })");
  auto first = interp::run(g, {});
  CHECK(first.outputs[0].tensor.get_int(0) == 41);
  auto second = interp::run(g, {}, first.next_state);
  CHECK(second.outputs[0].tensor.get_int(0) == 42);
}

TEST_CASE("pad modes and negative steps") {
  auto out = run_text(R"(graph "g"(%x: i32[3]) {
    %0 = pad(%x) {low = dims[2], high = dims[1], mode = "reflect"} : i32[6]
    %1 = pad(%x) {low = dims[2], high = dims[-1], mode = "wrap"} : i32[4]
    %2 = slice(%x) {axes = [0], starts = dims[2], sizes = dims[2], steps = [-2]} : i32[2]
    return %0, %1, %2
  })",
                      {from_ints(DType::i32, {3}, {1, 2, 3})});
  CHECK(to_ints(out[0].tensor) == std::vector<int64_t>{3, 2, 1, 2, 3, 2});
  CHECK(to_ints(out[1].tensor) == std::vector<int64_t>{2, 3, 1, 2});
  CHECK(to_ints(out[2].tensor) == std::vector<int64_t>{3, 1});
}
