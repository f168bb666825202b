// SPDX-License-Identifier: Apache-2.0
// The blocked loops of the reference contraction and convolution against their plain definitions, over the
// edges of the blocks, and their speed.
#include <doctest/doctest.h>

#include <chrono>
#include <cmath>

#include "interp/interpreter.h"
#include "ir/builder.h"
#include "ir/ops/gemm.h"
#include "ir/text.h"

using namespace pelton;
using namespace pelton::ir;

namespace {

std::vector<double> numbers(int64_t count, uint64_t seed) {
  std::vector<double> out;
  uint64_t state = seed * 2654435761u + 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    out.push_back(static_cast<double>(static_cast<int64_t>(state >> 33) % 2001 - 1000) / 256);
  }
  return out;
}

Tensor tensor(Dims dims, uint64_t seed) {
  std::vector<double> v = numbers(element_count(dims), seed);
  return from_doubles(DType::f32, std::move(dims), v);
}

}  // namespace

TEST_CASE("blocked product equals the plain one at block edges") {
  for (int64_t m : {1, 4, 5, 65})
    for (int64_t n : {1, 127, 128, 130})
      for (int64_t k : {1, 128, 257}) {
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(k);
        std::vector<double> a = numbers(m * k, 1), b = numbers(k * n, 2), c(static_cast<size_t>(m * n), 0.5);
        reference_gemm(m, n, k, a.data(), b.data(), c.data());
        bool equal = true;  // the terms are multiples of 2^-16 and small, so sums are exact
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0.5;
            for (int64_t p = 0; p < k; ++p)
              sum += a[static_cast<size_t>(i * k + p)] * b[static_cast<size_t>(p * n + j)];
            equal &= sum == c[static_cast<size_t>(i * n + j)];
          }
        CHECK(equal);
      }
}

TEST_CASE("convolution equals its definition across chunks of positions") {
  const int64_t height = 27, width = 31, channels = 3, outputs = 4;
  Graph g;
  ValueId x = g.add_input(Type::tensor(DType::f32, {1, channels, height, width})),
          w = g.add_input(Type::tensor(DType::f32, {outputs, channels, 3, 3}));
  Builder b(g);
  g.outputs = {b.op("conv", {x, w}, {{"low", Shape{1, 0}}, {"high", Shape{1, 2}}})};
  Tensor image = tensor({1, channels, height, width}, 3), kernel = tensor({outputs, channels, 3, 3}, 4);
  Tensor y = interp::run(g, {image, kernel}).outputs[0].tensor;
  REQUIRE(y.dims() == Dims{1, outputs, height, width});
  bool equal = true;
  for (int64_t o = 0; o < outputs; ++o)
    for (int64_t r = 0; r < height; ++r)
      for (int64_t q = 0; q < width; ++q) {
        double sum = 0;
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t i = 0; i < 3; ++i)
            for (int64_t j = 0; j < 3; ++j) {
              int64_t row = r - 1 + i, column = q + j;
              if (row < 0 || row >= height || column >= width) continue;
              sum += image.get_double((c * height + row) * width + column) *
                     kernel.get_double(((o * channels + c) * 3 + i) * 3 + j);
            }
        equal &= static_cast<float>(sum) == static_cast<float>(y.get_double((o * height + r) * width + q));
      }
  CHECK(equal);
}

// Verifying a vision transformer in minutes needs about 1 GFLOP/s a core; the bound leaves room for a machine
// that is busy with other work.
TEST_CASE("the reference product is not hopelessly slow") {
  const int64_t n = 384;
  std::vector<double> a = numbers(n * n, 5), b = numbers(n * n, 6), c(static_cast<size_t>(n * n));
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    auto start = std::chrono::steady_clock::now();
    reference_gemm(n, n, n, a.data(), b.data(), c.data());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  double gflops = 2e-9 * static_cast<double>(n * n * n) / best;
  MESSAGE("reference product: ", gflops, " GFLOP/s");
  CHECK(gflops > 0.25);
}

TEST_CASE("operations of a fused product where a size is an expression of symbols") {
  const Graph g = parse_graph(
      "graph \"g\"(%x: f32[floordiv(N, 2), 8], %w: f32[8,4]) { %y = fused(%x, %w) {body = graph \"b\"(%x: "
      "f32[floordiv(N, 2), 8], %w: f32[8,4]) { %0 = matmul(%x, %w) : f32[floordiv(N, 2), 4] return %0 }, "
      "kind = "
      "\"contraction\"} : f32[floordiv(N, 2), 4] return %y }");
  const NodeId id = g.order()[0];
  CHECK(g.op(id).flops(g, g[id], {{6, 8}, {8, 4}}, {{6, 4}}) == 2 * 6 * 8 * 4);
}
