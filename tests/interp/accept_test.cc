// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "ir/builder.h"
#include "ir/text.h"
#include "support/accept.h"

using namespace pelton;
using namespace pelton::ir;

namespace {

Tensor numbers(DType t, Dims dims, uint64_t seed) {
  std::vector<double> v;
  for (int64_t i = 0; i < element_count(dims); ++i)
    v.push_back(std::sin(static_cast<double>(i) * 1.7 + static_cast<double>(seed)));
  return from_doubles(t, std::move(dims), v);
}

// x[M,K] times y[K,N] in arithmetic T, in steps of four partial sums, as a vector kernel would.
template <class T>
Tensor lanes(const Tensor& x, const Tensor& y, DType store_sums) {
  int64_t m = x.dims()[0], k = x.dims()[1], n = y.dims()[1];
  std::vector<double> out;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      T part[4] = {};
      for (int64_t p = 0; p < k; ++p) {
        T& s = part[p % 4];
        s += static_cast<T>(x.get_double(i * k + p)) * static_cast<T>(y.get_double(p * n + j));
        s = static_cast<T>(from_doubles(store_sums, {1}, {static_cast<double>(s)}).get_double(0));
      }
      out.push_back(static_cast<double>(part[0] + part[1] + part[2] + part[3]));
    }
  return from_doubles(x.dtype(), {m, n}, out);
}

Graph matmul(DType t, int64_t m, int64_t k, int64_t n) {
  Graph g;
  ValueId x = g.add_input(Type::tensor(t, {m, k})), y = g.add_input(Type::tensor(t, {k, n}));
  g.outputs = {Builder(g).matmul(x, y)};
  return g;
}

}  // namespace

TEST_CASE("another order of summation is accepted, a narrower accumulator is not") {
  for (DType t : {DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(std::string(name(t)));
    Graph g = matmul(t, 6, 300, 7);
    Tensor x = numbers(t, {6, 300}, 1), y = numbers(t, {300, 7}, 2);
    test::check_accepted(g, {x, y}, {lanes<float>(x, y, DType::f32)});
    auto reference = interp::references(g, {x, y})[0];
    interp::Acceptance v = interp::judge(reference, lanes<float>(x, y, t == DType::f32 ? DType::f16 : t));
    CHECK(!v.accepted);
    CHECK(v.reason.find("allowed") != v.reason.npos);
  }
}

TEST_CASE("f64 is judged by a truth beyond f64") {
  Graph g = matmul(DType::f64, 5, 200, 5);
  Tensor x = numbers(DType::f64, {5, 200}, 3), y = numbers(DType::f64, {200, 5}, 4);
  auto reference = interp::references(g, {x, y})[0];
  CHECK(reference.error > 0);
  CHECK(interp::judge(reference, lanes<double>(x, y, DType::f64)).reason == "");
  CHECK(!interp::judge(reference, lanes<float>(x, y, DType::f32)).accepted);
}

TEST_CASE("composites are judged by their primitives") {
  Graph g = parse_graph(R"(graph "g"(%x: f32[N,33]) {
    symbol N in [1, 64]
    %0 = softmax(%x) {axis = -1} : f32[N,33]
    return %0
  })");
  Tensor x = numbers(DType::f32, {4, 33}, 5);
  std::vector<double> out;
  for (int64_t r = 0; r < 4; ++r) {
    float top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < 33; ++i) top = std::max(top, static_cast<float>(x.get_double(r * 33 + i)));
    for (int64_t i = 0; i < 33; ++i) sum += std::exp(static_cast<float>(x.get_double(r * 33 + i)) - top);
    for (int64_t i = 0; i < 33; ++i)
      out.push_back(std::exp(static_cast<float>(x.get_double(r * 33 + i)) - top) / sum);
  }
  test::check_accepted(g, {x}, {from_doubles(DType::f32, {4, 33}, out)});
  out[40] *= 1.00001;
  interp::Acceptance v = interp::judge(interp::references(g, {x})[0], from_doubles(DType::f32, {4, 33}, out));
  CHECK(!v.accepted);
  CHECK(v.worst == 40);
}

TEST_CASE("special values, exact types and rounded integers") {
  Graph g = parse_graph(R"(graph "g"(%x: f16[4], %i: i32[4]) {
    %0 = mul(%x, %x) : f16[4]
    %1 = cast(%x) {to = i8} : i8[4]
    %2 = add(%i, %i) : i32[4]
    return %0, %1, %2
  })");
  Tensor x = from_doubles(DType::f16, {4}, {NAN, 300, 2, 0.5}), i = from_ints(DType::i32, {4}, {1, 2, 3, 4});
  auto r = interp::references(g, {x, i});
  CHECK(interp::judge(r[0], from_doubles(DType::f16, {4}, {NAN, INFINITY, 4, 0.25})).accepted);
  CHECK(!interp::judge(r[0], from_doubles(DType::f16, {4}, {NAN, 65504, 4, 0.25})).accepted);
  CHECK(!interp::judge(r[0], from_doubles(DType::f16, {4}, {0, INFINITY, 4, 0.25})).accepted);
  CHECK(!interp::judge(r[0], from_doubles(DType::f16, {4}, {NAN, -INFINITY, 4, 0.25})).accepted);
  CHECK(interp::judge(r[1], from_ints(DType::i8, {4}, {0, 127, 2, 1})).accepted);
  CHECK(!interp::judge(r[1], from_ints(DType::i8, {4}, {0, 127, 4, 0})).accepted);
  CHECK(interp::judge(r[2], from_ints(DType::i32, {4}, {2, 4, 6, 8})).accepted);
  CHECK(!interp::judge(r[2], from_ints(DType::i32, {4}, {2, 4, 6, 9})).accepted);
  CHECK(interp::judge(r[2], from_ints(DType::i64, {4}, {2, 4, 6, 8})).reason ==
        "got i64[4], expected i32[4]");
}

TEST_CASE("bodies are judged like what they come to, iteration by iteration") {
  const Graph loop = parse_graph(R"(graph "g"(%x: f32[2,9], %w: f32[9,9], %n: i64[]) {
  %r, %rows = loop(%n, _, %x, %w) {body = graph "body"(%i: i64[], %c: bool[], %s: f32[2,9], %w: f32[9,9]) {
    %p = matmul(%s, %w) : f32[2,9]
    %t = sigmoid(%p) : f32[2,9]
    %z = constant() {value = tensor<i64[]>{1}} : i64[]
    %early = lt(%i, %z) : bool[]
    %u = if(%early, %t) {then = graph "yes"(%a: f32[2,9]) {
      %y = exp(%a) : f32[2,9]
      return %y
    }, else = graph "no"(%a: f32[2,9]) {
      %y = tanh(%a) : f32[2,9]
      return %y
    }} : f32[2,9]
    return %c, %u, %t
  }, carried = 1} : f32[2,9], f32[N,2,9]
  return %r, %rows
})");
  const Graph line = parse_graph(R"(graph "g"(%x: f32[2,9], %w: f32[9,9]) {
  %0 = matmul(%x, %w) : f32[2,9]
  %1 = sigmoid(%0) : f32[2,9]
  %2 = exp(%1) : f32[2,9]
  %3 = matmul(%2, %w) : f32[2,9]
  %4 = sigmoid(%3) : f32[2,9]
  %5 = tanh(%4) : f32[2,9]
  %6 = matmul(%5, %w) : f32[2,9]
  %7 = sigmoid(%6) : f32[2,9]
  %8 = tanh(%7) : f32[2,9]
  return %8, %1, %4, %7
})");
  const Tensor x = numbers(DType::f32, {2, 9}, 1), w = numbers(DType::f32, {9, 9}, 2);
  const auto got = interp::references(loop, {x, w, Tensor::scalar<int64_t>(3)}),
             want = interp::references(line, {x, w});
  CHECK(got[0].truth.same_bytes(want[0].truth));
  CHECK(got[0].plain.same_bytes(want[0].plain));
  CHECK(got[0].error == want[0].error);
  CHECK(got[0].error > 0);
  REQUIRE(got[1].truth.dims() == Dims{3, 2, 9});
  for (int64_t i = 0; i < got[1].truth.count(); ++i) {
    const interp::Reference& step = want[1 + static_cast<size_t>(i / 18)];
    CHECK(got[1].truth.get_double(i) == step.truth.get_double(i % 18));
    CHECK(got[1].plain.get_double(i) == step.plain.get_double(i % 18));
  }
}

TEST_CASE("a scan backwards is judged like its steps") {
  const Graph scan = parse_graph(R"(graph "g"(%h: f32[3], %x: f32[3,2]) {
  %r, %ys = scan(%h, %x) {body = graph "body"(%s: f32[3], %v: f32[3]) {
    %t = mul(%s, %v) : f32[3]
    %u = tanh(%t) : f32[3]
    return %u, %t
  }, carried = 1, scanned = 1, axes = [1], reverse = [1], out_axes = [1], out_reverse = [1]} : f32[3], f32[3,2]
  return %r, %ys
})");
  const Graph line = parse_graph(R"(graph "g"(%h: f32[3], %a: f32[3], %b: f32[3]) {
  %0 = mul(%h, %b) : f32[3]
  %1 = tanh(%0) : f32[3]
  %2 = mul(%1, %a) : f32[3]
  %3 = tanh(%2) : f32[3]
  return %3, %2, %0
})");
  const Tensor h = numbers(DType::f32, {3}, 1), x = numbers(DType::f32, {3, 2}, 2);
  Tensor a(DType::f32, {3}), b(DType::f32, {3});
  for (int64_t i = 0; i < 3; ++i)
    a.set_double(i, x.get_double(2 * i)), b.set_double(i, x.get_double(2 * i + 1));
  const auto got = interp::references(scan, {h, x}), want = interp::references(line, {h, a, b});
  CHECK(got[0].truth.same_bytes(want[0].truth));
  CHECK(got[0].error == want[0].error);
  for (int64_t i = 0; i < 6; ++i)
    CHECK(got[1].truth.get_double(i) == want[1 + static_cast<size_t>(i % 2)].truth.get_double(i / 2));
}
