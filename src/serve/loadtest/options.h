// SPDX-License-Identifier: Apache-2.0
// What `pelton loadtest` is asked to do, and what it found.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tensor/dim.h"

namespace pelton::serve {

struct LoadOptions {
  std::string url;  // http://host:port, grpc://host:port, or host:port (HTTP); IPv6 in brackets
  std::string model, version;
  std::vector<int> concurrency = {1};  // one measurement each
  std::vector<double> rates;           // requests per second; not empty: rates instead of concurrency
  bool poisson = false;                // rates: exponential gaps instead of equal ones
  int max_threads = 64;                // rates: requests in flight at most
  double window_s = 2, warm_up_s = 1;
  int windows = 3, max_windows = 10;  // stable: so many windows in a row agree
  double stability = 0.1;             // ... within this share of their mean
  uint64_t requests = 0;              // > 0: exactly so many requests instead of windows
  int64_t batch = 1;
  std::map<std::string, Dims> shapes;        // for dimensions that the model leaves open
  std::map<std::string, std::string> files;  // input -> file of raw data
  bool zeros = false;                        // inputs of zeros instead of pseudo-random values
  bool json_data = false;                    // HTTP: tensors as JSON
  bool streaming = false;                    // gRPC: ModelStreamInfer
  double timeout_s = 60;                     // without an answer for so long a request has failed
  bool shared_memory = false;                // tensors lie in system shared memory
  size_t output_bytes = 102400;              // ... with so much room for each output
  int sequence_length = 0;                   // > 0: each connection sends sequences of so many requests
  uint64_t seed = 1;
};

inline constexpr int kMaxThreads = 4096;              // of one measurement
inline constexpr double kMaxRate = 1e6;               // requests a second
inline constexpr int kMaxLevels = 1000;               // of one sweep
inline constexpr uint64_t kMaxArrivals = 50'000'000;  // that are planned for one rate

struct LoadResult {
  int concurrency = 0;
  double rate = 0;  // asked for; 0 in a concurrency measurement
  bool poisson = false;
  uint64_t requests = 0, errors = 0;
  double seconds = 0;
  bool stable = false;
  std::string first_error;
  std::vector<uint64_t> latencies_ns;  // sorted; with rates from the intended time of sending
  double throughput() const { return seconds > 0 ? static_cast<double>(requests) / seconds : 0; }
};

std::vector<LoadResult> run_loadtest(const LoadOptions& options);
std::string table_text(const std::vector<LoadResult>& results);
std::string results_json(const LoadOptions& options, const std::vector<LoadResult>& results);

}  // namespace pelton::serve
