// SPDX-License-Identifier: Apache-2.0
// Traces of single requests: which are traced, and where their times go: a JSON file, or spans for an
// OpenTelemetry collector. While tracing is off a request costs one relaxed load.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "serve/core/executor.h"
#include "serve/core/request.h"

namespace pelton::serve {

struct TraceSettings {
  bool on = false;             // level TIMESTAMPS, else OFF
  uint64_t rate = 1000;        // one request in so many
  int64_t count = -1;          // how many more; -1: no end
  uint64_t log_frequency = 0;  // file: a new part after so many traces; 0: one file, written at the end
  std::string file;            // set at start only
  bool opentelemetry = false;  // mode, set at start only
};

class Tracer {
 public:
  // Receives one span as a JSON object of the OTLP form; any thread, must not block.
  using SpanSink = std::function<void(std::string)>;
  // usage error if requests are to be traced and nothing says where to.
  Tracer(TraceSettings settings, SpanSink sink);
  ~Tracer() { flush(); }

  bool active() const { return active_.load(std::memory_order_relaxed); }
  // Gives the request its trace if it is one to be traced: by the settings, or because its parent is.
  void begin(Request& request);

  // Settings of a model, or of all for an empty name, as JSON; after applying `changes`, an object of texts,
  // lists or null (as for all). bad_format, or usage for what cannot be changed over the network.
  std::string settings_json(const std::string& model, std::string_view changes);
  void flush();  // writes what waits for the file

  class Trace;

 private:
  friend class Trace;
  void finish(const Trace& trace, const Request& request, const Response& response);
  void write_file(std::vector<std::string> traces, std::string path);
  TraceSettings& settings_of(const std::string& model);  // holding the lock
  void update_active();

  const TraceSettings start_;
  const SpanSink sink_;
  std::atomic<bool> active_{false};
  std::atomic<uint64_t> next_id_{0};
  std::mutex mutex_;
  TraceSettings settings_;
  std::map<std::string, TraceSettings> models_;
  std::map<std::string, uint64_t> seen_;  // requests by model, for the rate
  std::vector<std::string> waiting_;      // traces for the file
  uint64_t files_ = 0;
  Executor writer_{1};
};

}  // namespace pelton::serve
