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
