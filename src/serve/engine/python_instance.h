// SPDX-License-Identifier: Apache-2.0
// One instance of a Python model: the process that runs it and the executions that are under way there. A
// fast model gets several executions at once, so that neither side waits for the other; the process works
// them off in order. When it ends, the execution that it had begun fails, those behind it go to the process
// that takes its place.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "serve/core/engine.h"
#include "serve/core/services.h"
#include "serve/engine/worker_process.h"

namespace pelton::serve {

// Everything about one version of a model that its processes need.
struct PythonModel {
  ModelConfig config;
  std::string folder, file, executable;
  int64_t version = 1;
  std::shared_ptr<ServerServices> services;
};

class PythonInstance final : public Instance {
 public:
  // Starts the process; `engine` is the engine it belongs to.
  PythonInstance(std::shared_ptr<const PythonModel> model, const void* engine, int index);
  ~PythonInstance() override;

  void execute(BatchRun& run) override;
  int depth() override;
  void begin(BatchRun& run, std::function<void()> done) override;

 private:
  struct Flight {
    BatchRun* run;
    std::function<void()> done;
    uint64_t first_key;
  };
  struct Pending {
    RequestPtr request;
    Responder* responder;
  };

  std::shared_ptr<WorkerProcess> start();
  void ensure_process();
  void send_left(const std::shared_ptr<WorkerProcess>& process);
  void read(std::shared_ptr<WorkerProcess> process);
  bool listen(const std::shared_ptr<WorkerProcess>& process, std::string& why);
  std::shared_ptr<WorkerProcess> replace(const std::shared_ptr<WorkerProcess>& ended, const std::string& why);

  void handle(const std::shared_ptr<WorkerProcess>& process, const Frame& frame);
  void executed(const Frame& frame);
  void failed(const nlohmann::json& message);
  void respond(const nlohmann::json& message, const Frame& frame);
  void infer_for_model(const std::shared_ptr<WorkerProcess>& process, const nlohmann::json& message,
                       const Frame& frame);
  bool is_cancelled(uint64_t key);
  void give_back(Flight& flight);
  void fail_pending(const Error& error, uint64_t first, uint64_t count);

  const std::shared_ptr<const PythonModel> model_;
  const ModelConfig& config_;
  const int index_;
  const std::shared_ptr<CallSite> site_;
  std::atomic<int64_t> slowest_ns_{0};              // of recent executions; 0: not known yet
  const std::shared_ptr<std::atomic<int>> asking_;  // inner inferences without their answer
  const bool pipelines_;
  uint64_t batches_ = 0, keys_ = 0;  // used by the thread that begins executions

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<WorkerProcess> process_;  // null while there is none
  bool replacing_ = false;  // the next one is started and gets what the last one had not begun
  bool stopping_ = false;
  std::map<uint64_t, Flight> flights_;   // by batch
  std::map<uint64_t, Pending> pending_;  // decoupled: requests without their final response, by key
  Clock::time_point last_end_;           // of the newest execution
  std::thread reader_, sender_;
};

}  // namespace pelton::serve
