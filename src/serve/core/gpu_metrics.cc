// SPDX-License-Identifier: Apache-2.0
#include "serve/core/gpu_metrics.h"

#include <cmath>
#include <optional>

#include "base/cat.h"
#include "base/gpu_management.h"
#include "serve/core/custom_metrics.h"

namespace pelton::serve {
namespace {

// One family; `value` is asked for each GPU and has nothing where it does not know.
template <class F>
void family(std::string& out, std::string_view name, std::string_view type, std::string_view help,
            F&& value) {
  std::string rows;
  for (const GpuManagement::Gpu& gpu : GpuManagement::instance().gpus()) {
    const std::optional<double> v = value(gpu);
    if (!v) continue;
    const bool whole = *v == std::floor(*v);  // bytes keep all of their digits
    rows += cat(name, "{gpu_uuid=\"", escape_label(gpu.uuid), "\"} ",
                whole ? cat(static_cast<uint64_t>(*v)) : cat(*v), "\n");
  }
  if (!rows.empty()) out += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n", rows);
}

}  // namespace

std::string gpu_metrics_text() {
  const GpuManagement& m = GpuManagement::instance();
  using Gpu = GpuManagement::Gpu;
  std::string out;
  family(out, "nv_gpu_utilization", "gauge", "Share of time that the GPU was at work, 0 to 1",
         [&](const Gpu& g) { return m.utilization(g); });
  auto bytes = [&](uint64_t GpuManagement::Memory::*which) {
    return [&m, which](const Gpu& g) -> std::optional<double> {
      const std::optional<GpuManagement::Memory> memory = m.memory(g);
      if (!memory) return {};
      return static_cast<double>((*memory).*which);
    };
  };
  family(out, "nv_gpu_memory_total_bytes", "gauge", "Memory of the GPU",
         bytes(&GpuManagement::Memory::total));
  family(out, "nv_gpu_memory_used_bytes", "gauge", "Memory of the GPU in use",
         bytes(&GpuManagement::Memory::used));
  family(out, "nv_gpu_power_usage", "gauge", "Power that the GPU draws, in watts",
         [&](const Gpu& g) { return m.watts(g); });
  family(out, "nv_gpu_power_limit", "gauge", "Power that the GPU may draw, in watts",
         [&](const Gpu& g) { return m.watts_allowed(g); });
  family(out, "nv_energy_consumption", "counter",
         "Energy that the GPU has used since the driver was loaded, in joules",
         [&](const Gpu& g) { return m.joules(g); });
  return out;
}

}  // namespace pelton::serve
