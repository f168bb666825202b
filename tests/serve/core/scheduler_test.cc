// SPDX-License-Identifier: Apache-2.0
// Queues and batches, with an engine that the test holds up.
#include <doctest/doctest.h>

#include <algorithm>
#include <thread>

#include "serve/core/fixture.h"

namespace pelton::serve::test {
namespace {

// Records the batch sizes; the first execution waits for the latch.
struct Recorder {
  Latch gate;
  std::mutex mutex;
  std::vector<std::vector<int32_t>> batches;  // first element of each request
  bool first = true;

  Work work() {
    return [this](BatchRun& run) {
      bool hold = false;
      {
        std::lock_guard lock(mutex);
        hold = first;
        first = false;
        batches.emplace_back();
        for (const RequestPtr& r : run.requests)
          batches.back().push_back(ints(r->inputs[0]).empty() ? -1 : ints(r->inputs[0])[0]);
      }
      if (hold) gate.pass();
      echo(run);
    };
  }
};

std::vector<size_t> sizes(const Recorder& r) {
  std::vector<size_t> out;
  for (const auto& b : r.batches) out.push_back(b.size());
  return out;
}

}  // namespace

TEST_CASE("a batch is formed at the moment the instance is free") {
  Recorder recorder;
  TestServer server(recorder.work());
  server.folder.model("m", io("max_batch_size: 4 dynamic_batching { }", "1"));
  REQUIRE(server.start().empty());
  Answers answers;
  server.core->infer(answers.request("m", int_tensor({0}, {1, 1})));
  recorder.gate.wait_for(1);  // the instance is busy: the next ones gather
  for (int i = 1; i <= 6; ++i)
    server.core->infer(answers.request("m", int_tensor({i}, {1, 1}), std::to_string(i)));
  recorder.gate.open();
  const auto all = answers.wait();
  CHECK(sizes(recorder) == std::vector<size_t>{1, 4, 2});
  for (const Response& r : all) {
    REQUIRE_FALSE(r.error);
    if (!r.id.empty()) CHECK(ints(r.outputs[0]) == std::vector<int32_t>{std::stoi(r.id)});
  }
}

TEST_CASE("preferred sizes go at once, the rest when the delay is over") {
  Recorder recorder;
  recorder.gate.open();
  TestServer server(recorder.work());
  server.folder.model("m", io("max_batch_size: 8 dynamic_batching { preferred_batch_size: [4] "
                              "max_queue_delay_microseconds: 150000 }",
                              "1"));
  REQUIRE(server.start().empty());
  Answers four;
  const auto begin = Clock::now();
  for (int i = 0; i < 4; ++i) server.core->infer(four.request("m", int_tensor({i}, {1, 1})));
  four.wait();
  CHECK(Clock::now() - begin < std::chrono::milliseconds(140));
  Answers two;
  const auto start = Clock::now();
  for (int i = 0; i < 2; ++i) server.core->infer(two.request("m", int_tensor({i}, {1, 1})));
  two.wait();
  CHECK(Clock::now() - start >= std::chrono::milliseconds(149));
  CHECK(sizes(recorder) == std::vector<size_t>{4, 2});
}

TEST_CASE("requests of other shapes do not share a batch") {
  Recorder recorder;
  TestServer server(recorder.work());
  server.folder.model("m", io("max_batch_size: 8 dynamic_batching { }"));
  REQUIRE(server.start().empty());
  Answers answers;
  server.core->infer(answers.request("m", int_tensor({9}, {1, 1})));
  recorder.gate.wait_for(1);
  server.core->infer(answers.request("m", int_tensor({1, 1}, {1, 2})));
  server.core->infer(answers.request("m", int_tensor({2, 2}, {1, 2})));
  server.core->infer(answers.request("m", int_tensor({3, 3, 3}, {1, 3})));
  server.core->infer(answers.request("m", int_tensor({4, 4}, {1, 2})));
  recorder.gate.open();
  for (const Response& r : answers.wait()) CHECK_FALSE(r.error);
  CHECK(sizes(recorder) == std::vector<size_t>{1, 2, 1, 1});
}

TEST_CASE("priorities are served first, and full queues refuse with busy") {
  Recorder recorder;
  TestServer server(recorder.work());
  server.folder.model("m", io("max_batch_size: 1 dynamic_batching { priority_levels: 2 "
                              "default_priority_level: 2 default_queue_policy { max_queue_size: 3 } }",
                              "1"));
  REQUIRE(server.start().empty());
  Answers answers;
  server.core->infer(answers.request("m", int_tensor({0}, {1, 1})));
  recorder.gate.wait_for(1);
  for (int i = 1; i <= 4; ++i) server.core->infer(answers.request("m", int_tensor({i}, {1, 1})));
  auto urgent = answers.request("m", int_tensor({100}, {1, 1}));
  urgent->parameters["priority"] = uint64_t{1};
  server.core->infer(std::move(urgent));
  recorder.gate.open();
  size_t busy = 0;
  for (const Response& r : answers.wait())
    if (r.error) {
      ++busy;
      CHECK(r.error->code() == ErrorCode::busy);
      CHECK(std::string(r.error->what()).find("max_queue_size is 3") != std::string::npos);
    }
  CHECK(busy == 1);
  CHECK(recorder.batches == std::vector<std::vector<int32_t>>{{0}, {100}, {1}, {2}, {3}});
}

TEST_CASE("time-outs reject or delay as the policy says, and an override needs leave") {
  Recorder recorder;
  TestServer server(recorder.work());
  const std::string policy =
      "max_batch_size: 1 dynamic_batching { default_queue_policy { default_timeout_microseconds: 20000 ";
  server.folder.model("rejects", io(policy + "} }", "1"));
  server.folder.model("delays", io(policy + "timeout_action: DELAY } }", "1"));
  server.folder.model(
      "asked",
      io("max_batch_size: 1 dynamic_batching { default_queue_policy { allow_timeout_override: true } }",
         "1"));
  REQUIRE(server.start().empty());
  for (const char* model : {"rejects", "delays", "asked"}) {
    CAPTURE(model);
    {
      std::lock_guard lock(recorder.mutex);
      recorder.first = true;
    }
    Latch* gate = &recorder.gate;
    gate->~Latch();
    new (gate) Latch();
    Answers answers;
    // On a busy machine this one, too, may wait longer than it may.
    bool runs = false;
    for (int i = 0; i < 50 && !runs; ++i) {
      server.core->infer(answers.request(model, int_tensor({0}, {1, 1})));
      runs = recorder.gate.anyone_within(std::chrono::milliseconds(200));
    }
    CHECK(runs);
    auto late = answers.request(model, int_tensor({1}, {1, 1}), "late");
    if (model == std::string("asked")) late->parameters["timeout"] = uint64_t{20000};
    server.core->infer(std::move(late));
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    recorder.gate.open();
    for (const Response& r : answers.wait())
      if (r.id == "late") CHECK(r.error.has_value() == (model != std::string("delays")));
  }
}

TEST_CASE("requests whose client has gone or whose deadline is over are not computed") {
  Recorder recorder;
  TestServer server(recorder.work());
  server.folder.model("m", io("", "1"));
  REQUIRE(server.start().empty());
  Answers answers;
  server.core->infer(answers.request("m", int_tensor({0}, {1})));
  recorder.gate.wait_for(1);
  auto gone = answers.request("m", int_tensor({1}, {1}), "gone");
  auto token = std::make_shared<CancelToken>();
  gone->token = token;
  server.core->infer(std::move(gone));
  auto late = answers.request("m", int_tensor({2}, {1}), "late");
  late->deadline = Clock::now() + std::chrono::milliseconds(5);
  server.core->infer(std::move(late));
  server.core->infer(answers.request("m", int_tensor({3}, {1}), "fine"));
  token->cancel();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  recorder.gate.open();
  for (const Response& r : answers.wait()) {
    if (r.id == "gone") CHECK((r.error && r.error->code() == ErrorCode::cancelled));
    if (r.id == "late") CHECK((r.error && r.error->code() == ErrorCode::deadline));
    if (r.id == "fine") CHECK_FALSE(r.error);
  }
  CHECK(recorder.batches == std::vector<std::vector<int32_t>>{{0}, {3}});
  const auto stats = server.core->stats().get("m", "1");
  CHECK(stats->pending.load() == 0);
  CHECK(stats->failures[static_cast<size_t>(FailReason::canceled)].load() == 1);
}

TEST_CASE("preserve_ordering answers in the order of arrival over several instances") {
  std::atomic<int> n{0};
  TestServer server([&](BatchRun& run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(n++ % 2 ? 1 : 12));
    echo(run);
  });
  server.folder.model(
      "m",
      io("max_batch_size: 1 dynamic_batching { preserve_ordering: true } instance_group { count: 4 }", "1"));
  REQUIRE(server.start().empty());
  Answers answers;
  for (int i = 0; i < 40; ++i)
    server.core->infer(answers.request("m", int_tensor({i}, {1, 1}), std::to_string(i)));
  const auto all = answers.wait();
  for (size_t i = 0; i < all.size(); ++i) CHECK(all[i].id == std::to_string(i));
}

TEST_CASE("an engine that throws answers every request of the batch with its error") {
  Recorder recorder;
  TestServer server([&](BatchRun& run) {
    recorder.gate.pass();
    if (run.requests.size() > 1) throw std::runtime_error("boom");
    echo(run);
  });
  server.folder.model("m", io("max_batch_size: 8 dynamic_batching { }", "1"));
  REQUIRE(server.start().empty());
  Answers answers;
  server.core->infer(answers.request("m", int_tensor({0}, {1, 1})));
  recorder.gate.wait_for(1);
  for (int i = 0; i < 3; ++i) server.core->infer(answers.request("m", int_tensor({i}, {1, 1}), "bad"));
  recorder.gate.open();
  for (const Response& r : answers.wait()) {
    CHECK(r.error.has_value() == (r.id == "bad"));
    if (r.error) CHECK(std::string(r.error->what()).find("boom") != std::string::npos);
  }
  CHECK_FALSE(server.infer("m", int_tensor({5}, {1, 1})).error);
}

TEST_CASE("many threads against many instances: every request is answered once, with its own data") {
  TestServer server([](BatchRun& run) { echo(run); });
  server.folder.model("m", io("max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 200 } "
                              "instance_group { count: 3 }",
                              "1"));
  REQUIRE(server.start().empty());
  constexpr int kThreads = 4, kEach = 300;
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      Answers answers;
      for (int i = 0; i < kEach; ++i)
        server.core->infer(
            answers.request("m", int_tensor({t * kEach + i}, {1, 1}), std::to_string(t * kEach + i)));
      for (const Response& r : answers.wait()) right += !r.error && ints(r.outputs[0])[0] == std::stoi(r.id);
    });
  for (auto& t : threads) t.join();
  CHECK(right == kThreads * kEach);
  const auto stats = server.core->stats().get("m", "1");
  CHECK(stats->success.count.load() == kThreads * kEach);
  CHECK(stats->inferences.load() == kThreads * kEach);
  CHECK(stats->pending.load() == 0);
  CHECK(metrics_text(server.core->stats())
            .find(cat("nv_inference_count{model=\"m\",version=\"1\"} ", kThreads * kEach)) !=
        std::string::npos);
}

TEST_CASE("stopping answers what waits with busy and waits for what runs") {
  Recorder recorder;
  TestServer server(recorder.work());
  server.folder.model("m", io("", "1"));
  REQUIRE(server.start().empty());
  Answers answers;
  for (int i = 0; i < 5; ++i)
    server.core->infer(answers.request("m", int_tensor({i}, {1}), std::to_string(i)));
  recorder.gate.wait_for(1);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    recorder.gate.open();
  });
  server.core->stop();
  opener.join();
  CHECK(answers.finals() == 5);
  size_t errors = 0;
  for (const Response& r : answers.wait()) errors += r.error.has_value();
  CHECK(errors == 4);
  CHECK(server.infer("m", int_tensor({1}, {1})).error->code() == ErrorCode::busy);
}

}  // namespace pelton::serve::test
