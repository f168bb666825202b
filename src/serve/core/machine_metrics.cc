// SPDX-License-Identifier: Apache-2.0
#include "serve/core/machine_metrics.h"

#include <algorithm>
#include <fstream>

#include "base/cat.h"
#include "serve/core/gpu_metrics.h"

namespace pelton::serve {
namespace {

struct HostMemory {
  uint64_t total = 0, used = 0;
};
HostMemory host_memory() {
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  uint64_t kib = 0, available = 0;
  HostMemory m;
  while (in >> key >> kib && std::getline(in, unit)) {
    if (key == "MemTotal:") m.total = kib * 1024;
    if (key == "MemAvailable:") available = kib * 1024;
  }
  m.used = m.total - std::min(available, m.total);
  return m;
}

void value(std::string& out, std::string_view name, std::string_view help, const std::string& v) {
  out += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " gauge\n", name, " ", v, "\n");
}

}  // namespace

double MachineMetrics::utilization() {
  std::ifstream in("/proc/stat");
  std::string cpu;
  in >> cpu;
  uint64_t all = 0, idle = 0, v = 0;
  for (int i = 0; i < 8 && in >> v; ++i) {  // user nice system idle iowait irq softirq steal
    all += v;
    if (i == 3 || i == 4) idle += v;
  }
  if (all > all_)
    utilization_ = 1 - static_cast<double>(idle - std::min(idle, idle_)) / static_cast<double>(all - all_);
  all_ = all;
  idle_ = idle;
  return std::clamp(utilization_, 0.0, 1.0);
}

std::string MachineMetrics::text() {
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (read_ && now - *read_ < options_.interval) return text_;
  read_ = now;
  text_.clear();
  if (options_.cpu) {
    value(text_, "nv_cpu_utilization",
          "Share of the machine's processors at work since the last reading, 0 to 1", cat(utilization()));
    const HostMemory memory = host_memory();
    value(text_, "nv_cpu_memory_total_bytes", "Memory of the machine", cat(memory.total));
    value(text_, "nv_cpu_memory_used_bytes", "Memory of the machine in use", cat(memory.used));
  }
  if (options_.gpu) text_ += gpu_metrics_text();
  return text_;
}

}  // namespace pelton::serve
