// SPDX-License-Identifier: Apache-2.0
// What engines may ask of the server they run in: further inferences, model control, metrics of their own.
// Engines are made before the server, so the calls are filled in when it starts and taken away when it stops.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "serve/core/call_graph.h"
#include "serve/core/custom_metrics.h"
#include "serve/core/memory_gate.h"
#include "serve/core/request.h"

namespace pelton::serve {

class ServerServices {
 public:
  struct Calls {
    std::function<void(RequestPtr)> infer;  // every outcome goes to the request's callback
    std::function<void(const std::string& model, const std::string& config_json)> load;  // blocks
    std::function<void(const std::string& model, bool dependents)> unload;               // blocks
    std::function<bool(const std::string& model, const std::string& version)> ready;
    std::function<void(std::function<void()>)> post;  // runs what blocks, on a thread that may wait
  };

  // `answer_bytes`: how many the processes of models may have sent that are not passed on yet.
  explicit ServerServices(size_t answer_bytes = size_t{2} << 30) : answers(answer_bytes) {}

  void open(Calls calls) {
    std::lock_guard lock(mutex_);
    calls_ = std::move(calls);
  }
  void close() { open({}); }
  // busy error while the server does not run.
  Calls calls() const;

  MemoryGate answers;
  CustomMetrics metrics;
  const std::shared_ptr<CallGraph> graph = std::make_shared<CallGraph>();

 private:
  mutable std::mutex mutex_;
  Calls calls_;
};

}  // namespace pelton::serve
