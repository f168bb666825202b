// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "data/pipeline.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::data;
using test::expect_error;

namespace {

// Sample i: a picture [2, 3, 1] or [3, 4, 5] of value 10 i, label i % 4.
std::shared_ptr<const Source> flat(int64_t n, Dims dims, DType dtype = DType::f32) {
  return from_function(
      n,
      [dims, dtype](int64_t i) {
        Sample s;
        s.set("image", Tensor::full(dtype, dims, 10.0 * static_cast<double>(i)));
        s.set("label", Tensor::scalar<int64_t>(i % 4));
        return s;
      },
      "flat");
}

PipelineSpec mixing(const char* op, Options options = {}) {
  PipelineSpec p;
  p.seed = 7;
  p.stages = {{"one_hot", {{"classes", 4}}, ""}, {op, std::move(options), ""}};
  return p;
}

Batch first(const PipelineSpec& p, const std::shared_ptr<const Source>& source, int64_t batch) {
  Pipeline pipeline(p, source, {.batch = batch});
  Batch b;
  const bool there = pipeline.next(b);
  REQUIRE(there);
  return b;
}

}  // namespace

TEST_CASE("mixup blends neighbours and their labels by one share") {
  const Batch b = first(mixing("mixup", {{"alpha", 0.4}}), flat(5, {2, 3, 1}), 5);
  const Tensor &x = b.at("image"), &y = b.at("label");
  REQUIRE(y.dims() == Dims{5, 4});
  for (int64_t i = 0; i < 4; ++i) {
    const int64_t partner = i ^ 1;
    const double own = y.get_double(i * 4 + i % 4);
    CHECK(own + y.get_double(i * 4 + partner % 4) == doctest::Approx(1));
    const double expected =
        own * 10.0 * static_cast<double>(i) + (1 - own) * 10.0 * static_cast<double>(partner);
    for (int64_t k = 0; k < 6; ++k) CHECK(x.get_double(i * 6 + k) == doctest::Approx(expected));
  }
  CHECK(x.get_double(4 * 6) == 40);  // the odd one out
  CHECK(y.get_double(4 * 4 + 0) == 1);
  // Again the same, and another epoch not.
  CHECK(first(mixing("mixup", {{"alpha", 0.4}}), flat(5, {2, 3, 1}), 5).at("image").same_bytes(x));
  Pipeline p(mixing("mixup", {{"alpha", 0.4}}), flat(5, {2, 3, 1}), {.batch = 5});
  Batch other;
  while (p.next(other)) {
  }
  REQUIRE(p.next(other));
  CHECK_FALSE(other.at("image").same_bytes(x));
}

TEST_CASE("shares follow the beta distribution") {
  for (double alpha : {0.3, 1.0, 4.0}) {
    CAPTURE(alpha);
    const int64_t n = 8000;
    const Batch b = first(mixing("mixup", {{"alpha", alpha}}), flat(n, {1, 1, 1}), n);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i += 2) {
      const double own = b.at("label").get_double(i * 4 + i % 4);
      sum += own;
      squares += own * own;
    }
    const double mean = sum / (n / 2), variance = squares / (n / 2) - mean * mean;
    CHECK(mean == doctest::Approx(0.5).epsilon(0.03));
    CHECK(variance == doctest::Approx(1 / (4 * (2 * alpha + 1))).epsilon(0.08));
  }
}

TEST_CASE("cutmix moves a rectangle and mixes labels by its area") {
  for (const Dims& dims : {Dims{3, 16, 20}, Dims{16, 20, 3}}) {
    const bool first_axis = dims[0] == 3;
    const Batch b = first(mixing("cutmix"), flat(8, dims, DType::u8), 8);
    const Tensor &x = b.at("image"), &y = b.at("label");
    int64_t moved_somewhere = 0;
    for (int64_t i = 0; i < 8; ++i) {
      int64_t moved = 0;
      for (int64_t k = 0; k < 960; ++k) {
        const int64_t v = x.get_int(i * 960 + k);
        REQUIRE((v == 10 * i || v == 10 * (i ^ 1)));
        moved += v == 10 * (i ^ 1);
        // All channels of a pixel come from one picture.
        CHECK(v == x.get_int(i * 960 + (first_axis ? k % 320 : k - k % 3)));
      }
      CHECK(y.get_double(i * 4 + i % 4) == doctest::Approx(1 - static_cast<double>(moved) / 960));
      moved_somewhere += moved;
    }
    CHECK(moved_somewhere > 0);
  }
}

TEST_CASE("stages on batches: a chance, half precision, and what is refused") {
  const Batch b = first(mixing("mixup", {{"probability", coin(0)}}), flat(4, {2, 2, 1}, DType::f16), 4);
  CHECK(b.at("image").get_double(4) == 10);
  const Batch h = first(mixing("mixup"), flat(4, {2, 2, 1}, DType::f16), 4);
  CHECK(h.at("image").get_double(0) + h.at("image").get_double(4) == doctest::Approx(10).epsilon(0.01));
  PipelineSpec p = mixing("mixup");
  p.stages.erase(p.stages.begin());
  expect_error(ErrorCode::usage, {"f32 [N, classes]", "one_hot"}, [&] { first(p, flat(4, {2, 2, 1}), 4); });
  p = mixing("mixup");
  std::swap(p.stages[0], p.stages[1]);
  expect_error(ErrorCode::usage, {"one_hot works on samples", "last"}, [&] {
    first(p, flat(4, {2, 2, 1}), 4);
  });
  expect_error(ErrorCode::bad_name, {"'picture'"}, [&] {
    first(mixing("mixup", {{"field", "picture"}}), flat(4, {2, 2, 1}), 4);
  });
  // Evaluation mixes nothing.
  Pipeline e(mixing("cutmix"), flat(4, {2, 2, 1}), {.batch = 4, .evaluation = true});
  Batch out;
  REQUIRE(e.next(out));
  CHECK(out.at("image").get_double(4) == 10);
}
