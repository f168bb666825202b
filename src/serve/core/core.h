// SPDX-License-Identifier: Apache-2.0
// The server without its sockets: repository, statistics and the answers that both front ends give. JSON
// objects use the protocol's field names, which are also the field names of the gRPC messages.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "serve/core/executor.h"
#include "serve/core/gpu_region.h"
#include "serve/core/load_meter.h"
#include "serve/core/machine_metrics.h"
#include "serve/core/memory_gate.h"
#include "serve/core/repository.h"
#include "serve/core/services.h"
#include "serve/core/shared_memory.h"

namespace pelton::serve {

// Which messages are logged.
struct LogSwitches {
  bool info = false, warning = true, error = true;
  unsigned verbose = 0;  // above 0: everything
  LogLevel level() const;
};

struct CoreOptions {
  std::string server_name = "pelton", server_version;
  RepositoryOptions repository;
  size_t inflight_bytes = size_t{2} << 30;  // of requests, and as many of answers
  bool strict_readiness = true;
  bool allow_client_shm = false;
  OpenGpuRegion open_gpu_region;  // for CUDA shared memory; empty: there is none
  MetricsOptions metrics;
  size_t cache_bytes = 0;  // response cache; 0: off
  bool rate_limits = false;
  std::map<std::string, uint64_t> rate_resources;
  TraceSettings trace;
  Tracer::SpanSink span_sink;  // for mode opentelemetry
  std::string log_file;        // shown in the log settings
  LogSwitches log;
  std::shared_ptr<ServerServices> services;  // opened for engines while the server runs; may be null
};

class Core {
 public:
  Core(CoreOptions options, const BackendTable& backends);
  ~Core();

  std::map<std::string, std::string> start();
  void stop();

  void infer(RequestPtr request) const;  // request->model and ->version name the target
  // A request that its front end could not read: a failure of the model it names, if there is one.
  void count_refused(const Request& request, ErrorCode code) const;
  bool live() const { return true; }
  bool ready() const;
  bool draining() const { return draining_.load(); }
  void set_draining() { draining_.store(true); }

  std::string server_metadata_json() const;
  std::string model_metadata_json(std::string_view name, std::string_view version) const;
  std::string model_config_json(std::string_view name, std::string_view version) const;
  std::string model_config_wire(std::string_view name, std::string_view version) const;
  // Empty name: every model that is loaded.
  std::string statistics_json(std::string_view name, std::string_view version) const;
  std::string shared_memory_json(const std::string& region, bool of_gpus) const;  // [{"name":...}]
  std::string index_json(bool ready_only) const;                                  // [{"name":...}]
  std::string metrics() const;
  std::string status_page() const;  // HTML
  // Log settings as JSON, after applying `changes` (an object; empty text: none).
  std::string log_settings_json(std::string_view changes);
  std::string trace_settings_json(std::string_view model, std::string_view changes) const;
  bool tracing() const { return options_.repository.limits.tracer->active(); }

  Repository& repository() { return *repository_; }
  const Repository& repository() const { return *repository_; }
  MemoryGate& gate() { return gate_; }        // of requests
  MemoryGate& answers() { return answers_; }  // that wait for their clients to read them
  SharedMemory& shared_memory() { return shared_memory_; }
  // Work that may take long and must leave the front ends' threads: loads and unloads.
  Executor& admin() { return admin_; }
  StatsTable& stats() { return stats_; }

 private:
  const CoreOptions options_;
  const Clock::time_point started_ = Clock::now();
  StatsTable stats_;
  mutable LoadMeter load_meter_;
  mutable MachineMetrics machine_metrics_;
  MemoryGate gate_, answers_;
  SharedMemory shared_memory_;
  Executor admin_;
  Executor model_calls_;  // loads that models ask for: one of them may wait for another, so apart and many
  std::unique_ptr<Repository> repository_;
  std::atomic<bool> loaded_{false};  // start() has loaded what it could
  std::atomic<bool> draining_{false};
  std::mutex log_mutex_;
  LogSwitches log_;
};

// Extensions named in the server's metadata: exactly those that are built.
std::vector<std::string> extensions(bool shared_memory, bool gpu_memory);

// How an error travels: HTTP status here; the gRPC front end has its own table.
int http_status(ErrorCode code);
std::string error_json(const Error& e);       // {"error": "..."}
std::string json_string(std::string_view s);  // quoted and escaped; invalid UTF-8 is replaced
std::string html_escape(std::string_view s);

// Fields of the parameters that the protocol reserves, moved from `parameters` to the request. bad_format on
// a wrong type.
void read_reserved_parameters(Request& request);
bool is_reserved_parameter(std::string_view name);

}  // namespace pelton::serve
