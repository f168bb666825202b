// SPDX-License-Identifier: Apache-2.0
// Threads and batches ahead from measured rates: the rule alone, then pipelines that follow it.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/thread_pool.h"
#include "data/pace.h"
#include "data/pipeline.h"

using namespace pelton;
using namespace pelton::data;
using namespace std::chrono_literals;

namespace {

constexpr int64_t kMs = 1'000'000;

struct Threads {
  explicit Threads(int n) { set_threads(n); }
  ~Threads() { set_threads(0); }
};

std::shared_ptr<const Source> numbers(int64_t n, std::function<void(int64_t)> meanwhile) {
  return from_function(
      n,
      [meanwhile = std::move(meanwhile)](int64_t i) {
        meanwhile(i);
        Sample s;
        s.set("x", Tensor::scalar<int64_t>(i));
        return s;
      },
      "numbers");
}

PipelineSpec plain() {
  PipelineSpec p;
  p.bad_samples = "raise";
  return p;
}

}  // namespace

TEST_CASE("pace: readers are what waiting takes, in proportion to computing") {
  Pace p(4);
  CHECK(p.readers() == 0);
  for (int i = 0; i < 1000; ++i) p.sample_made(2 * kMs, 0);
  CHECK(p.readers() == 0);
  CHECK(p.waiting() == 0);
  for (int i = 0; i < 4000; ++i) p.sample_made(8 * kMs, 6 * kMs);  // three times as long as the rest
  CHECK(p.readers() == 12);
  CHECK(p.waiting() == doctest::Approx(0.75).epsilon(0.01));
  for (int i = 0; i < 4000; ++i) p.sample_made(100 * kMs, 100 * kMs);
  CHECK(p.readers() == Pace::kMostReaders);
  for (int i = 0; i < 4000; ++i) p.sample_made(2 * kMs, kMs / 10);  // what is over is forgotten
  CHECK(p.readers() == 0);
}

TEST_CASE("pace: batches ahead cover the slowest one and feed every thread") {
  Pace p(2);
  CHECK(p.ahead(32) == 2);
  CHECK(p.ahead(1) == 4);  // two samples a thread
  for (int i = 0; i < 100; ++i) p.batch_taken(10 * kMs, 9 * kMs, 9 * kMs), p.batch_made(12 * kMs);
  CHECK(p.ahead(32) == 3);
  p.batch_made(65 * kMs);
  CHECK(p.ahead(32) == 8);
  p.batch_made(5000 * kMs);
  CHECK(p.ahead(32) == Pace::kMostAhead);
  for (int i = 0; i < 1000; ++i) p.batch_made(5 * kMs);
  CHECK(p.ahead(32) == 2);
  for (int i = 0; i < 100; ++i) p.sample_made(11 * kMs, 10 * kMs);
  CHECK(p.readers() == 20);
  CHECK(p.ahead(4) == 11);
}

TEST_CASE("pace: a consumer sleeps when it is away and not on the CPU") {
  Pace p(2);
  CHECK_FALSE(p.consumer_sleeps());
  for (int i = 0; i < 50; ++i) p.batch_taken(10 * kMs, 9 * kMs, kMs);
  CHECK(p.consumer_sleeps());
  for (int i = 0; i < 50; ++i) p.batch_taken(10 * kMs, 9 * kMs, 8 * kMs);
  CHECK_FALSE(p.consumer_sleeps());
  for (int i = 0; i < 50; ++i) p.batch_taken(10 * kMs, kMs / 100, 0);  // mostly in next()
  CHECK_FALSE(p.consumer_sleeps());
}

TEST_CASE("while reads wait, more of them are under way than there are threads") {
  const Threads two(2);
  std::atomic<int> now{0}, most{0};
  Pipeline p(plain(),
             numbers(400,
                     [&](int64_t) {
                       const int n = ++now;
                       for (int m = most; n > m && !most.compare_exchange_weak(m, n);) {
                       }
                       std::this_thread::sleep_for(5ms);
                       --now;
                     }),
             {.batch = 8});
  int64_t expected = 0;
  for (Batch b; p.next(b);)
    for (const int64_t i : b.indices) CHECK(i == expected++);
  CHECK(expected == 400);
  CHECK(most > 8);
  CHECK(most <= 2 + Pace::kMostReaders + 1);
  CHECK(p.report().readers > 8);
  CHECK(p.report().waiting > 0.5);
  CHECK(p.report().in_flight * 8 >= 2 * p.report().readers);
}

TEST_CASE("reads that do not wait get no threads beside the pool's") {
  const Threads two(2);
  std::atomic<uint64_t> sink{0};
  Pipeline p(plain(),
             numbers(400,
                     [&](int64_t i) {
                       uint64_t v = static_cast<uint64_t>(i);
                       for (int k = 0; k < 200'000; ++k) v = v * 6364136223846793005u + 1;
                       sink += v;
                     }),
             {.batch = 8});
  for (Batch b; p.next(b);) {
  }
  // Other processes of the machine may take the CPU away meanwhile, which looks like waiting.
  CHECK(p.report().readers < Pace::kMostReaders / 2);
}

TEST_CASE("a consumer that sleeps leaves its core to the pipeline, even the only one") {
  const Threads one(1);
  std::atomic<int> reads{0};
  Pipeline p(plain(), numbers(4000, [&](int64_t) { ++reads; }), {.batch = 8});
  Batch b;
  for (int i = 0; i < 12; ++i) {
    REQUIRE(p.next(b));
    std::this_thread::sleep_for(5ms);
  }
  const int taken = 1 + 12 * 8;  // and the plan's sample
  for (int i = 0; i < 500 && reads < taken + 2 * 8; ++i) std::this_thread::sleep_for(10ms);
  CHECK(reads >= taken + 2 * 8);
}

TEST_CASE("more batches are made ahead when some take long, within the memory budget") {
  const Threads two(2);
  for (const bool short_of_memory : {false, true}) {
    Pipeline p(plain(),
               numbers(800,
                       [](int64_t i) {
                         if (i % 100 == 50) std::this_thread::sleep_for(120ms);
                       }),
               {.batch = 4, .memory_budget_bytes = short_of_memory ? 4 * 8 * 4 : int64_t{1} << 30});
    int64_t most = 0;
    for (Batch b; p.next(b);) {
      std::this_thread::sleep_for(5ms);
      most = std::max(most, p.report().in_flight);
    }
    if (short_of_memory)
      CHECK(most == 4);
    else
      CHECK(most >= 6);
  }
}

// Each of the two threads may meet the sample that stalls.
TEST_CASE("a batch does not wait for a read of a later one") {
  const Threads two(2);
  for (const int64_t slow : {0, 1}) {
    std::mutex mutex;
    std::condition_variable changed;
    bool begun = false, released = false;
    int reads = 0;
    Pipeline p(plain(),
               numbers(8,
                       [&](int64_t i) {
                         std::unique_lock lock(mutex);
                         if (reads++ == 0) return;  // the plan's
                         if (i == slow) changed.wait_for(lock, 5s, [&] { return begun; });
                         if (i != 3) return;
                         begun = true;
                         changed.notify_all();
                         changed.wait_for(lock, 20s, [&] { return released; });
                       }),
               {.batch = 2, .prefetch = 3});
    Batch b;
    const auto start = std::chrono::steady_clock::now();
    REQUIRE(p.next(b));
    CHECK(std::chrono::steady_clock::now() - start < 10s);
    CHECK(b.indices == std::vector<int64_t>{0, 1});
    {
      std::lock_guard lock(mutex);
      CHECK_FALSE(released);
      released = true;
    }
    changed.notify_all();
    for (int i = 1; i < 4; ++i) REQUIRE(p.next(b));
  }
}

TEST_CASE("replacements of bad samples come from the shard's own") {
  constexpr int64_t kSamples = 60, kShards = 3;
  for (const bool shuffle : {false, true})
    for (const bool stick : {false, true})
      for (int64_t shard = 0; shard < kShards; ++shard) {
        PipelineSpec spec;
        spec.bad_limit = 1;
        spec.source.shuffle = shuffle;
        Pipeline p(spec,
                   from_function(
                       kSamples,
                       [](int64_t i) {
                         if (i % 3 == 0) fail(ErrorCode::bad_format, "spoilt", cat("file-", i));
                         Sample s;
                         s.set("x", Tensor::scalar<int64_t>(i));
                         return s;
                       },
                       "faulty"),
                   {.batch = 5, .shards = kShards, .shard = shard, .stick_to_shard = stick});
        for (int64_t epoch = 0; epoch < 3; ++epoch) {
          std::vector<uint8_t> mine(kSamples, 0);
          for (int64_t step = 0; step < p.steps(); ++step)
            for (int64_t i = 0; i < p.order().count(epoch, step); ++i)
              mine[static_cast<size_t>(p.order().at(epoch, step, i).index)] = 1;
          int64_t replaced = 0, strange = 0;
          for (Batch b; p.next(b);) {
            replaced += std::ssize(b.bad);
            for (const int64_t i : b.indices) strange += !mine[static_cast<size_t>(i)];
          }
          CHECK(replaced > 0);
          CHECK(strange == 0);
        }
      }
}
