// SPDX-License-Identifier: Apache-2.0
// Stages on fields, and what batches do with samples of different sizes.
#include <doctest/doctest.h>

#include <cmath>

#include "data/ops/stage.h"
#include "data/pipeline.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::data;
using test::expect_error;

namespace {

StageFn stage(const char* op, const Options& o = {}) {
  const StageKind& k = stage_kind(op, "test");
  return k.make(Args(k.schema, o, "test"), Match::none);
}
const Draw kDraw(1, 0, 0, 0);

// Sample i holds i + 1 numbers, all of them i + 1.
std::shared_ptr<const Source> growing(int64_t n) {
  class Growing : public Source {
   public:
    explicit Growing(int64_t n) : n_(n) {}
    int64_t size() const override { return n_; }
    std::string identity() const override { return cat("growing ", n_); }
    int64_t stored_bytes(int64_t i) const override { return 4 * (i + 1); }
    Sample read(int64_t i) const override {
      Sample s;
      s.index = i;
      s.set("x", Tensor::full(DType::f32, {i + 1}, static_cast<double>(i + 1)));
      return s;
    }

   private:
    int64_t n_;
  };
  return std::make_shared<Growing>(n);
}

}  // namespace

TEST_CASE("lookup, slice and stack") {
  Sample s;
  s.set("label", Tensor::from<int64_t>({3}, {7, 9, 7}));
  stage("lookup", {{"keys", std::vector<double>{7, 9}}, {"values", std::vector<double>{0, 1}}})(s, kDraw);
  CHECK(to_ints(s.at("label")) == std::vector<int64_t>{0, 1, 0});
  stage("lookup", {{"keys", std::vector<double>{1}}, {"values", std::vector<double>{0.5}}, {"other", -2}})(
      s, kDraw);
  CHECK(to_doubles(s.at("label")) == std::vector<double>{-2, 0.5, -2});
  s.set("label", Tensor::scalar<int64_t>(3));
  expect_error(ErrorCode::bad_format, {"'label' holds 3", "'keys' does not"}, [&] {
    stage("lookup", {{"keys", std::vector<double>{7, 9}}, {"values", std::vector<double>{0, 1}}})(s, kDraw);
  });
  expect_error(ErrorCode::usage, {"holds 7 twice"}, [&] {
    stage("lookup", {{"keys", std::vector<double>{7, 7}}, {"values", std::vector<double>{0, 1}}});
  });

  s.set("x", Tensor::from<float>({2, 3}, {0, 1, 2, 3, 4, 5}));
  s.set("y", Tensor::from<float>({2, 3}, {9, 9, 9, 9, 9, 9}));
  stage("stack", {{"fields", std::vector<std::string>{"x", "y"}}, {"into", "both"}})(s, kDraw);
  CHECK(s.at("both").dims() == Dims{2, 2, 3});
  CHECK_FALSE(s.find("x"));
  stage("slice", {{"field", "both"}, {"axis", 2}, {"start", 1}, {"size", 2}})(s, kDraw);
  CHECK(to_doubles(s.at("both")) == std::vector<double>{1, 2, 4, 5, 9, 9, 9, 9});
  stage("slice", {{"field", "both"}, {"size", 1}, {"start", 1}})(s, kDraw);
  CHECK(s.at("both").dims() == Dims{1, 2, 2});
  expect_error(ErrorCode::bad_shape, {"no part 2 .. 2 of axis 0"}, [&] {
    stage("slice", {{"field", "both"}, {"size", 1}, {"start", 2}})(s, kDraw);
  });
  // Where first and size together are no number of 64 bits.
  expect_error(ErrorCode::bad_shape, {"no part 9007199254740992 .. ", "of axis 0"}, [&] {
    stage("slice", {{"field", "both"}, {"size", 0x1p53}, {"start", 0x1p53}})(s, kDraw);
  });
  s.set("names", Tensor::of_strings({2}, {"a", "b"}));
  expect_error(ErrorCode::bad_type, {"'names'", "not whole bytes"}, [&] {
    stage("slice", {{"field", "names"}, {"size", 1}, {"start", 0}})(s, kDraw);
  });
}

TEST_CASE("one_hot takes one whole number") {
  Sample s;
  for (const Tensor& label : {Tensor(DType::i64, {0}), Tensor::from<int64_t>({2}, {1, 2}),
                              Tensor::from<float>({1}, {1}), Tensor::of_strings({1}, {"cat"})}) {
    s.set("label", label);
    expect_error(ErrorCode::bad_type, {"'label'", "not one whole number"}, [&] {
      stage("one_hot", {{"classes", 4}})(s, kDraw);
    });
  }
  s.set("label", Tensor::from<int64_t>({1}, {2}));
  stage("one_hot", {{"classes", 4}})(s, kDraw);
  CHECK(to_doubles(s.at("label")) == std::vector<double>{0, 0, 1, 0});
}

TEST_CASE("pad_longest fills the ends of samples and rounds sizes up") {
  PipelineSpec p;
  p.stages = {{"pad_longest", {{"field", "x"}, {"value", -1}, {"multiple", 4}}, ""}};
  Pipeline run(p, growing(5), {.batch = 5});
  Batch b;
  REQUIRE(run.next(b));
  REQUIRE(b.at("x").dims() == Dims{5, 8});
  for (int64_t i = 0; i < 5; ++i) {
    CHECK(b.at("x.size").get_int(i) == i + 1);
    for (int64_t k = 0; k < 8; ++k) CHECK(b.at("x").get_double(i * 8 + k) == (k <= i ? i + 1 : -1));
  }
  Pipeline single(p, growing(1), {.batch = 1});
  REQUIRE(single.next(b));
  CHECK(b.at("x.size").get_int(0) == 1);
  CHECK(to_doubles(b.at("x")) == std::vector<double>{1, -1, -1, -1});
}

TEST_CASE("bucket: samples of a batch differ little, every sample comes once, and any place can be resumed") {
  PipelineSpec p;
  p.seed = 8;
  p.source.shuffle = true;
  p.bucket = 10;
  auto waste = [](Pipeline& run, std::vector<int>* seen) {
    double filled = 0, all = 0;
    for (Batch b; run.next(b);) {
      for (int64_t i = 0; i < b.count(); ++i) {
        filled += static_cast<double>(b.indices[static_cast<size_t>(i)] + 1);
        if (seen) ++(*seen)[static_cast<size_t>(b.indices[static_cast<size_t>(i)])];
      }
      all += static_cast<double>(b.at("x").count());
    }
    return 1 - filled / all;
  };
  Pipeline bucketed(p, growing(203), {.batch = 10});
  std::vector<int> seen(203, 0);
  const double with = waste(bucketed, &seen);
  CHECK(seen == std::vector<int>(203, 1));
  p.bucket = 0;
  Pipeline plain(p, growing(203), {.batch = 10});
  const double without = waste(plain, nullptr);
  CHECK(without > 0.3);
  CHECK(with < 0.12);

  p.bucket = 10;
  Pipeline a(p, growing(203), {.batch = 10}), c(p, growing(203), {.batch = 10});
  Batch x, y;
  std::vector<int64_t> lengths;
  for (int i = 0; i < 7; ++i) {
    REQUIRE(a.next(x));
    lengths.push_back(x.at("x").dims()[1]);
  }
  CHECK_FALSE(std::ranges::is_sorted(lengths));  // batches come in no order of size
  c.restore(a.state());
  while (a.next(x)) {
    REQUIRE(c.next(y));
    CHECK(x.indices == y.indices);
  }
  expect_error(ErrorCode::usage, {"does not tell the sizes"}, [&] {
    Pipeline(p,
             from_function(
                 3, [](int64_t) { return Sample(); }, "f"),
             {});
  });
}

TEST_CASE("shot noise has the mean and the variance of counted photons") {
  Sample s;
  s.image.emplace(Tensor::full(DType::u8, {100, 100, 3}, 100));
  stage("noise", {{"shot", 4}})(s, kDraw);
  const Tensor p = s.picture().pixels();
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < p.count(); ++i) {
    const double v = p.as<uint8_t>()[i];
    sum += v, squares += v * v;
  }
  const double n = static_cast<double>(p.count()), mean = sum / n;
  CHECK(mean == doctest::Approx(100).epsilon(0.01));
  CHECK(squares / n - mean * mean == doctest::Approx(400).epsilon(0.05));  // level times mean
  // Many photons: the normal approximation.
  s.image.emplace(Tensor::full(DType::u8, {100, 100, 3}, 200));
  stage("noise", {{"shot", 0.5}})(s, kDraw);
  const Tensor q = s.picture().pixels();
  sum = squares = 0;
  for (int64_t i = 0; i < q.count(); ++i) {
    const double v = q.as<uint8_t>()[i];
    sum += v, squares += v * v;
  }
  CHECK(sum / n == doctest::Approx(200).epsilon(0.005));
  CHECK(squares / n - sum / n * (sum / n) == doctest::Approx(100).epsilon(0.06));
}
