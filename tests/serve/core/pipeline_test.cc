// SPDX-License-Identifier: Apache-2.0
// Instances that take further work while they run.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>

#include "serve/core/fixture.h"

namespace pelton::serve::test {
namespace {

// Executions wait in a line of their own and are worked off by a thread, in order.
class LineInstance final : public Instance {
 public:
  struct Shared {
    std::atomic<int> depth{1}, most{0}, running{0};
    std::atomic<int> by_instance[8]{};
    Latch gate;
    std::atomic<bool> hold{false};
  };
  LineInstance(Shared& shared, int index) : shared_(shared), index_(index), thread_([this] { work(); }) {}
  ~LineInstance() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
    CHECK(line_.empty());  // the scheduler waits for what it began
  }
  int depth() override { return shared_.depth; }
  void execute(BatchRun& run) override {
    Latch done;
    begin(run, [&] { done.open(); });
    done.pass();
  }
  void begin(BatchRun& run, std::function<void()> done) override {
    const int32_t first = ints(run.requests[0]->inputs[0])[0];
    if (first == -1) fail(ErrorCode::internal, "nothing begins with -1");
    if (first == -2) {  // answers, then fails
      echo(run);
      done();
      fail(ErrorCode::internal, "too late to fail");
    }
    std::lock_guard lock(mutex_);
    const int now = ++running_;
    for (int most = shared_.most; now > most && !shared_.most.compare_exchange_weak(most, now);) {
    }
    ++shared_.by_instance[index_];
    line_.push_back({&run, std::move(done)});
    wake_.notify_one();
  }

 private:
  struct Entry {
    BatchRun* run;
    std::function<void()> done;
  };
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stop_ || !line_.empty(); });
      if (line_.empty()) return;
      Entry e = std::move(line_.front());
      line_.pop_front();
      lock.unlock();
      if (shared_.hold) shared_.gate.pass();
      echo(*e.run);
      --running_;
      e.done();
      lock.lock();
    }
  }

  Shared& shared_;
  const int index_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Entry> line_;
  std::atomic<int> running_{0};
  bool stop_ = false;
  std::thread thread_;
};

class LineBackend final : public Backend {
 public:
  explicit LineBackend(LineInstance::Shared& shared) : shared_(shared) {}
  std::shared_ptr<const void> complete(Node&, const ModelDir&, int64_t) const override { return nullptr; }
  std::shared_ptr<Engine> load(const ModelConfig&, const ModelDir&, int64_t,
                               std::shared_ptr<const void>) const override {
    struct LineEngine final : Engine {
      explicit LineEngine(LineInstance::Shared& s) : shared(s) {}
      std::unique_ptr<Instance> make_instance(int i) override {
        return std::make_unique<LineInstance>(shared, i);
      }
      LineInstance::Shared& shared;
    };
    return std::make_shared<LineEngine>(shared_);
  }

 private:
  LineInstance::Shared& shared_;
};

struct Line {
  LineInstance::Shared line;
};
struct LineServer : Line, TestServer {  // the line outlives the server
  LineServer() { backends.add("line", std::make_shared<LineBackend>(line)); }
};

void wait_until(const std::function<bool()>& done) {
  for (int i = 0; i < 10'000 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE(done());
}

}  // namespace

TEST_CASE("a deep instance gets as much at once as it takes, in order, and errors stay with their request") {
  LineServer server;
  server.folder.model("m", io("", "1", "line"));
  REQUIRE(server.start().empty());
  server.line.depth = 4;
  server.line.hold = true;
  Answers answers;
  for (int i = 0; i < 10; ++i)
    server.core->infer(answers.request("m", int_tensor({i == 2 ? -1 : i}, {1}), std::to_string(i)));
  wait_until([&] { return server.line.most == 4; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(server.line.by_instance[0] == 4);  // the others wait in the queue, where they can still be cancelled
  server.line.gate.open();
  const auto all = answers.wait();
  REQUIRE(all.size() == 10);
  int last = -1;
  for (const Response& r : all) {
    const int i = std::stoi(r.id);
    if (i == 2) {
      REQUIRE(r.error);
      CHECK(r.error->message() == "nothing begins with -1");
      continue;
    }
    REQUIRE_FALSE(r.error);
    CHECK(ints(r.outputs[0])[0] == i);
    CHECK(i > last);
    last = i;
  }
  CHECK(server.line.most == 4);
}

TEST_CASE("an engine that fails after it has answered answers nobody twice") {
  LineServer s;
  s.line.depth = 4;
  s.folder.model("m", io("", "1", "line"));
  REQUIRE(s.start().empty());
  Answers a;
  for (int i = 0; i < 20; ++i) s.core->infer(a.request("m", int_tensor({i % 2 ? -2 : i}, {1})));
  const auto answers = a.wait();
  CHECK(answers.size() == 20);
  for (const Response& r : answers) CHECK_FALSE(r.error);
  s.core->stop();  // waits for what it counts as running
  CHECK(a.finals() == 20);
}

TEST_CASE("an idle instance comes before a second request for a busy one") {
  LineServer server;
  server.folder.model("m", io("instance_group { count: 3 }", "1", "line"));
  REQUIRE(server.start().empty());
  server.line.depth = 8;
  server.line.hold = true;
  Answers answers;
  for (int i = 0; i < 3; ++i) server.core->infer(answers.request("m", int_tensor({i}, {1})));
  wait_until([&] {
    return server.line.by_instance[0] + server.line.by_instance[1] + server.line.by_instance[2] == 3;
  });
  for (int i = 0; i < 3; ++i) CHECK(server.line.by_instance[i] == 1);
  server.line.gate.open();
  answers.wait();
}

TEST_CASE("many clients, changing depth, reloads: every request is answered once with its own data") {
  LineServer server;
  server.folder.model("m",
                      io("max_batch_size: 4 instance_group { count: 2 } dynamic_batching { }", "1", "line"));
  RepositoryOptions options;
  options.mode = ControlMode::explicit_control;
  options.load_models = {"m"};
  REQUIRE(server.start(options).empty());
  std::atomic<int> wrong{0}, right{0};
  std::vector<std::thread> clients;
  for (int t = 0; t < 4; ++t)
    clients.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        const int value = t * 1000 + i;
        const Response r = server.infer("m", int_tensor({value}, {1, 1}));
        ++(r.error || ints(r.outputs[0]) != std::vector<int32_t>{value} ? wrong : right);
      }
    });
  for (int i = 0; i < 20; ++i) {
    server.line.depth = 1 + i % 5;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (i % 5 == 0) server.core->repository().load("m", {});
  }
  for (std::thread& t : clients) t.join();
  CHECK(wrong == 0);
  CHECK(right == 1200);
}

}  // namespace pelton::serve::test
