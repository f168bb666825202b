// SPDX-License-Identifier: Apache-2.0
// State of the machine on the scrape page: the nv_cpu_* and nv_gpu_* families.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "serve/core/request.h"
#include "serve/core/stats.h"

namespace pelton::serve {

class MachineMetrics {
 public:
  explicit MachineMetrics(const MetricsOptions& options) : options_(options) {}
  // Prometheus text. What was read less than the interval ago is said again.
  std::string text();

 private:
  double utilization();  // of the processors since the last call

  const MetricsOptions options_;
  std::mutex mutex_;
  std::optional<Clock::time_point> read_;
  std::string text_;
  uint64_t all_ = 0, idle_ = 0;  // ticks of the processors at the last call
  double utilization_ = 0;
};

}  // namespace pelton::serve
