// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

#include "base/file.h"
#include "base/thread_pool.h"
#include "data/codec/jpeg.h"
#include "data/pipeline.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace pelton;
using namespace pelton::data;

namespace {

PipelineSpec pictures(int count = 40) {
  PipelineSpec p;
  p.seed = 3;
  p.source = {"synthetic", {{"dims", std::vector<double>{48, 64, 3}}, {"count", count}}, {}, true};
  p.stages = {{"decode", {}, ""},
              {"random_resized_crop", {{"size", 32}}, ""},
              {"flip", {}, ""},
              {"rotate", {{"angle", uniform(-20, 20)}}, ""},
              {"contrast", {{"factor", uniform(0.5, 1.5)}}, ""},
              {"normalize", {}, ""}};
  return p;
}

// index -> bytes of the picture, over one epoch.
std::map<int64_t, std::string> epoch_of(Pipeline& p) {
  std::map<int64_t, std::string> out;
  for (Batch b; p.next(b);) {
    const Tensor& t = b.at("image");
    const size_t bytes = static_cast<size_t>(t.bytes() / t.dims()[0]);
    for (size_t i = 0; i < b.indices.size(); ++i)
      if (static_cast<int64_t>(i) < b.count() - b.padding)
        out[b.indices[i]] = std::string(static_cast<const char*>(t.data()) + i * bytes, bytes);
  }
  return out;
}

// A source whose samples with index % 5 == 0 cannot be read.
std::shared_ptr<const Source> faulty(int64_t n, int64_t every = 5) {
  return from_function(
      n,
      [every](int64_t i) {
        if (i % every == 0) fail(ErrorCode::bad_format, "spoilt", cat("file-", i));
        Sample s;
        s.set("x", Tensor::scalar<int64_t>(i));
        return s;
      },
      "faulty");
}

PipelineSpec plain(const char* policy) {
  PipelineSpec p;
  p.bad_samples = policy;
  p.bad_limit = 0.5;
  return p;
}

}  // namespace

TEST_CASE("a sample's pixels depend on seed, epoch and index only") {
  Pipeline one(pictures(), {.batch = 7, .prefetch = 1});
  auto expected = epoch_of(one), second = epoch_of(one);
  CHECK(expected.size() == 40);
  CHECK(expected != second);
  for (int threads : {1, 2, 4}) {
    set_threads(threads);
    std::map<int64_t, std::string> all;
    for (int64_t shard = 0; shard < 3; ++shard) {
      Pipeline p(pictures(), {.batch = 5, .shards = 3, .shard = shard, .prefetch = 3});
      all.merge(epoch_of(p));
    }
    CHECK(all == expected);
  }
  set_threads(0);
}

TEST_CASE("resuming in the middle of an epoch goes on with the same batches") {
  Pipeline a(pictures(), {.batch = 6});
  Batch b;
  for (int i = 0; i < 3; ++i) REQUIRE(a.next(b));
  const std::string saved = a.state().str();
  CHECK(saved.size() < 80);
  auto rest = epoch_of(a), after = epoch_of(a);
  Pipeline c(pictures(), {.batch = 6});
  REQUIRE(c.next(b));
  c.restore(PipelineState::parse(saved));
  CHECK(epoch_of(c) == rest);
  CHECK(epoch_of(c) == after);
}

TEST_CASE("a state of another pipeline is refused") {
  Pipeline a(pictures(), {.batch = 6});
  PipelineSpec other = pictures();
  other.stages.pop_back();
  test::expect_error(ErrorCode::usage, {"another pipeline"},
                     [&] { Pipeline(other, {.batch = 6}).restore(a.state()); });
  Batch b;
  REQUIRE(a.next(b));
  test::expect_error(ErrorCode::usage, {"middle of an epoch"},
                     [&] { Pipeline(pictures(), {.batch = 5}).restore(a.state()); });
  test::expect_error(ErrorCode::bad_format, {"not a pipeline state"}, [] { PipelineState::parse("hello"); });
  // Between epochs the number of workers may change.
  while (a.next(b)) {
  }
  Pipeline wider(pictures(), {.batch = 4, .shards = 2});
  wider.restore(a.state());
  REQUIRE(wider.next(b));
  CHECK(b.epoch == 1);
}

TEST_CASE("bad samples: skip, replace, mark, raise") {
  Batch b;
  Pipeline skip(plain("skip"), faulty(20), {.batch = 5});
  REQUIRE(skip.next(b));
  CHECK(b.indices == std::vector<int64_t>{1, 2, 3, 4});
  REQUIRE(b.bad.size() == 1);
  CHECK(b.bad[0].index == 0);
  CHECK(b.bad[0].origin == "file-0");
  CHECK(b.bad[0].op == "read");
  CHECK(b.bad[0].reason == "spoilt");

  Pipeline replace(plain("replace"), faulty(20), {.batch = 5});
  REQUIRE(replace.next(b));
  CHECK(b.count() == 5);
  CHECK(b.indices[0] % 5 != 0);
  CHECK(b.at("x").as<int64_t>()[0] == b.indices[0]);
  CHECK(b.bad.size() >= 1);

  Pipeline mark(plain("mark"), faulty(20), {.batch = 5});
  REQUIRE(mark.next(b));
  CHECK(b.count() == 5);
  CHECK(b.valid == std::vector<uint8_t>{0, 1, 1, 1, 1});
  CHECK(to_ints(b.at("x")) == std::vector<int64_t>{0, 1, 2, 3, 4});

  Pipeline raise(plain("raise"), faulty(20), {.batch = 4});
  test::expect_error(ErrorCode::bad_format, {"spoilt", "sample 0, read", "file-0"}, [&] { raise.next(b); });
  CHECK(raise.state().step == 0);
  while (skip.next(b)) {
  }
  CHECK(skip.report().bad == 4);
}

TEST_CASE("too many bad samples stop the run and say why") {
  PipelineSpec p = plain("skip");
  p.bad_limit = 0.1;
  Pipeline pipeline(p, faulty(200, 2), {.batch = 10});
  test::expect_error(ErrorCode::limit, {"could not be used", "bad_limit = 0.1", "read: spoilt"}, [&] {
    for (Batch b; pipeline.next(b);) {
    }
  });
}

TEST_CASE("an error belongs to its own sample, however far ahead it was found") {
  Pipeline p(plain("skip"),
             from_function(
                 40,
                 [](int64_t i) {
                   if (i == 33) fail(ErrorCode::bad_format, "spoilt", "file-33");
                   Sample s;
                   s.set("x", Tensor::scalar<int64_t>(i));
                   return s;
                 },
                 "one"),
             {.batch = 4, .prefetch = 6});
  for (Batch b; p.next(b);) {
    CHECK(b.bad.size() == (b.step == 8 ? 1 : 0));
    if (!b.bad.empty()) CHECK(b.bad[0].step == 8);
  }
}

TEST_CASE("fields that differ in size are padded and told") {
  Pipeline p(plain("raise"),
             from_function(
                 3,
                 [](int64_t i) {
                   Sample s;
                   s.set("boxes", Tensor::full(DType::f32, {i, 4}, 1.0 + static_cast<double>(i)));
                   return s;
                 },
                 "boxes"),
             {.batch = 3});
  Batch b;
  REQUIRE(p.next(b));
  CHECK(b.at("boxes").dims() == Dims{3, 2, 4});
  CHECK(to_ints(b.at("boxes.size")) == std::vector<int64_t>{0, 4, 1, 4, 2, 4});
  CHECK(b.at("boxes").get_double(8) == 2);
  CHECK(b.at("boxes").get_double(12) == 0);
  CHECK(b.at("boxes").get_double(23) == 3);
}

TEST_CASE("a memory budget is kept, or refused when one batch does not fit") {
  Pipeline p(pictures(), {.batch = 4, .prefetch = 8, .memory_budget_bytes = 4 * 32 * 32 * 3 * 4 * 3});
  Batch b;
  REQUIRE(p.next(b));
  CHECK(p.report().in_flight == 2);
  test::expect_error(ErrorCode::limit, {"one batch takes", "memory budget is 1000"}, [&] {
    Pipeline tiny(pictures(), {.batch = 4, .memory_budget_bytes = 1000});
    tiny.next(b);
  });
}

TEST_CASE("the budget holds when later samples are larger than the first") {
  auto growing = [](int64_t largest) {
    return from_function(
        40,
        [largest](int64_t i) {
          Sample s;
          s.set("x", Tensor::full(DType::u8, {i < 20 ? 10 : largest}, 1));
          return s;
        },
        "growing");
  };
  Pipeline p(plain("raise"), growing(1000), {.batch = 4, .prefetch = 7, .memory_budget_bytes = 10000});
  Batch b;
  REQUIRE(p.next(b));
  CHECK(p.report().in_flight == 8);
  while (p.next(b)) {
  }
  CHECK(p.report().in_flight == 2);
  CHECK(p.report().batch_bytes == 4000 + 4 * 8);  // and the sizes
  Pipeline q(plain("raise"), growing(3000), {.batch = 4, .memory_budget_bytes = 10000});
  test::expect_error(ErrorCode::limit, {"one batch takes 120", "memory budget is 10000"}, [&] {
    while (q.next(b)) {
    }
  });
}

TEST_CASE("a batch stays as it is while later ones are made") {
  Pipeline p(pictures(), {.batch = 4});
  Batch first, other;
  REQUIRE(p.next(first));
  const Tensor copy = first.at("image").clone();
  while (p.next(other)) {
  }
  CHECK(first.at("image").same_bytes(copy));
}

TEST_CASE("closing at any moment neither hangs nor touches freed memory") {
  for (int round = 0; round < 60; ++round) {
    Pipeline p(pictures(), {.batch = 3, .prefetch = 4});
    Batch b;
    for (int i = 0; i < round % 4; ++i) p.next(b);
    if (round % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(round * 40));
    if (round % 5 == 0) p.restore({1, 2, p.state().fingerprint});
  }
}

TEST_CASE("a paused consumer costs no work") {
  std::atomic<int> reads{0};
  Pipeline p(plain("raise"),
             from_function(
                 1000,
                 [&](int64_t i) {
                   ++reads;
                   Sample s;
                   s.set("x", Tensor::scalar<int64_t>(i));
                   return s;
                 },
                 "count"),
             {.batch = 10, .prefetch = 2});
  Batch b;
  REQUIRE(p.next(b));
  const int window = 1 + 4 * 10;  // the plan's sample, the batch that was taken and three made ahead
  for (int i = 0; i < 1000 && reads < window; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(reads == window);
}

TEST_CASE("damaged files are named with the operator that met them") {
  test::TempDir dir;
  Tensor image(DType::u8, {40, 40, 3});
  for (int64_t i = 0; i < image.count(); ++i) image.set_int(i, i * i * 7 % 251);
  std::vector<uint8_t> jpeg = jpeg_encode(image, 90);
  std::string bytes(jpeg.begin(), jpeg.end());
  for (int i = 0; i < 6; ++i) write_file(dir / cat(i, ".jpg"), bytes);
  write_file(dir / "6.jpg", bytes.substr(0, bytes.size() / 2));
  write_file(dir / "7.jpg", "no picture");
  PipelineSpec p = plain("skip");
  p.source = {"folder", {{"path", dir.path()}, {"labels", false}}, {}, false};
  p.stages = {{"decode", {}, ""}, {"resize", {{"size", 16}}, ""}, {"normalize", {}, ""}};
  Pipeline pipeline(p, {.batch = 8});
  Batch b;
  REQUIRE(pipeline.next(b));
  CHECK(b.count() == 6);
  REQUIRE(b.bad.size() == 2);
  for (const BadSample& bad : b.bad) {
    CHECK(bad.op == "decode");
    CHECK(bad.origin.find(bad.index == 6 ? "6.jpg" : "7.jpg") != std::string::npos);
    CHECK(bad.reason.find(bad.index == 6 ? "cut short" : "not an image") != std::string::npos);
  }
}
