// SPDX-License-Identifier: Apache-2.0
// Repositories in a temporary folder and a blocking client, for the tests of the server's core.
#pragma once

#include <stdlib.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "serve/core/core.h"

namespace pelton::serve::test {

struct TempFolder {
  std::filesystem::path path;
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "pelton-test-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  void write(const std::string& relative, const std::string& text) const {
    std::filesystem::create_directories((path / relative).parent_path());
    std::ofstream(path / relative, std::ios::binary) << text;
  }
  void model(const std::string& name, const std::string& config, std::vector<int> versions = {1}) const {
    for (int v : versions) std::filesystem::create_directories(path / name / std::to_string(v));
    write(name + "/config.pbtxt", config);
  }
};

// What the test's engine does with a batch.
using Work = std::function<void(BatchRun&)>;

// Backend "test": calls `work` for each execution; instances are `count` threads like those of a real engine.
class TestBackend final : public Backend {
 public:
  explicit TestBackend(Work work) : work_(std::move(work)) {}
  std::shared_ptr<const void> complete(Node&, const ModelDir&, int64_t) const override { return nullptr; }
  std::shared_ptr<Engine> load(const ModelConfig&, const ModelDir& dir, int64_t,
                               std::shared_ptr<const void>) const override {
    uploaded = dir.uploaded();
    ++loads;
    if (broken) fail(ErrorCode::bad_format, "the test's engine is broken");
    struct TestInstance final : Instance {
      explicit TestInstance(const Work& w) : work(w) {}
      void execute(BatchRun& run) override { work(run); }
      const Work& work;
    };
    struct TestEngine final : Engine {
      explicit TestEngine(const Work& w) : work(w) {}
      std::unique_ptr<Instance> make_instance(int) override { return std::make_unique<TestInstance>(work); }
      const Work& work;
    };
    return std::make_shared<TestEngine>(work_);
  }
  mutable std::atomic<bool> uploaded = false;  // the last model that was loaded
  mutable std::atomic<int> loads = 0;
  std::atomic<bool> broken = false;  // every load fails

 private:
  const Work work_;
};

// Copies INPUT0 of each request to OUTPUT0.
inline void echo(BatchRun& run) {
  for (size_t i = 0; i < run.requests.size(); ++i) {
    TensorValue t = run.requests[i]->inputs.at(0);
    t.name = "OUTPUT0";
    run.responses[i].outputs.push_back(std::move(t));
  }
  run.input_end = run.infer_end = Clock::now();
}

inline std::string io(const std::string& more = "", const std::string& dims = "-1",
                      const std::string& backend = "test") {
  return "backend: \"" + backend + "\"\ninput { name: \"INPUT0\" data_type: TYPE_INT32 dims: [" + dims +
         "] }\noutput { name: \"OUTPUT0\" data_type: TYPE_INT32 dims: [" + dims + "] }\n" + more;
}

inline TensorValue int_tensor(std::vector<int32_t> values, Dims dims) {
  std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  return {"INPUT0", DType::i32, std::move(dims), Blob::from(std::move(bytes))};
}
inline std::vector<int32_t> ints(const TensorValue& t) {
  const auto* p = reinterpret_cast<const int32_t*>(t.data.data);
  return {p, p + t.data.size / 4};
}

// Answers of requests sent without waiting.
class Answers {
 public:
  RequestPtr request(const std::string& model, TensorValue input, std::string id = "") {
    auto r = std::make_unique<Request>();
    r->model = model;
    r->id = std::move(id);
    r->inputs.push_back(std::move(input));
    {
      std::lock_guard lock(mutex_);
      ++sent_;
    }
    r->set_callback([this](Response&& response, bool final) {
      std::lock_guard lock(mutex_);
      if (final) ++finals_;
      all_.push_back(std::move(response));
      changed_.notify_all();
    });
    return r;
  }
  // Blocks until every request that was made has its final answer.
  std::vector<Response> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finals_ == sent_; });
    return all_;
  }
  size_t finals() {
    std::lock_guard lock(mutex_);
    return finals_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t sent_ = 0, finals_ = 0;
  std::vector<Response> all_;
};

struct TestServer {
  TempFolder folder;
  BackendTable backends;
  std::shared_ptr<TestBackend> backend;
  std::unique_ptr<Core> core;

  explicit TestServer(Work work = echo) : backend(std::make_shared<TestBackend>(std::move(work))) {
    backends.add("test", backend);
  }
  std::map<std::string, std::string> start(RepositoryOptions r = {}) {
    CoreOptions o;
    r.paths = {folder.path.string()};
    o.repository = std::move(r);
    core = std::make_unique<Core>(o, backends);
    return core->start();
  }
  // Model "m", which echoes any number of elements.
  std::map<std::string, std::string> start_echo() {
    folder.model("m", io());
    return start();
  }
  // Model "m" of rows of one element, batched on two instances, that may be loaded anew while it serves.
  std::map<std::string, std::string> start_reloadable() {
    folder.model("m", io("max_batch_size: 4 dynamic_batching { } instance_group { count: 2 }", "1"));
    RepositoryOptions r;
    r.mode = ControlMode::explicit_control;
    r.load_models = {"m"};
    return start(std::move(r));
  }
  // Ends the core and a front end in the order of the server's own end; false if calls were left after 5 s.
  template <class FrontEnd>
  bool end(FrontEnd& front) {
    core->set_draining();
    if constexpr (requires { front.drain(5); })
      front.drain(5);
    else
      front.drain();
    for (int i = 0; i < 5000 && !front.drained(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const bool all = front.drained();
    core->stop();
    front.stop();
    return all;
  }
  Response infer(const std::string& model, TensorValue input) {
    Answers a;
    core->infer(a.request(model, std::move(input)));
    return a.wait().at(0);
  }
};

// Whether the condition came true within ten seconds.
template <class Condition>
bool until(Condition&& condition) {
  for (int i = 0; i < 10000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Lets the threads of an engine wait until the test opens it.
class Latch {
 public:
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void wait_for(int n) {  // until n threads have come
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= n; });
  }
  bool anyone_within(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return waiting_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

}  // namespace pelton::serve::test
