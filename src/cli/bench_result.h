// SPDX-License-Identifier: Apache-2.0
// What `pelton bench` measured, and how it is shown.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/energy.h"
#include "cli/layer_times.h"
#include "cli/statistics.h"
#include "runtime/executable.h"

namespace pelton::cli {

// Of a device with memory of its own.
struct BenchOnDevice {
  // Medians of copies to the device, work on it, copies back, and what a run takes beside them, all of the
  // same runs: what the device's marks cost counts as the host's.
  runtime::PhaseTimes phases;
  double host_ms = 0;
  int64_t peak_bytes = 0;
  std::string product;
  Energy energy;
};

struct BenchResult {
  std::string model, target, precision;
  std::vector<std::pair<std::string, Dims>> inputs;
  int threads = 0;
  uint64_t seed = 0;
  bool device_buffers = false;
  double load_ms = 0, compile_ms = 0;  // load: to the first result, without the compilation
  size_t warm_up = 0, runs = 0;
  Latency latency;
  double throughput = 0;  // items of the first axis a second
  int64_t peak_bytes = 0;
  runtime::Memory memory;
  std::optional<BenchOnDevice> device;
  std::optional<LayerTimes> layers;
};

nlohmann::json bench_json(const BenchResult& result);
void print_bench(const BenchResult& result);

}  // namespace pelton::cli
