// SPDX-License-Identifier: Apache-2.0
#include "serve/core/gpu_metrics.h"

#include <dlfcn.h>

#include <cmath>
#include <vector>

#include "base/cat.h"
#include "base/log.h"
#include "serve/core/custom_metrics.h"

namespace pelton::serve {
namespace {

// Of the management library's published interface; functions return 0 when they have an answer.
using Device = void*;
struct Utilization {
  unsigned gpu, memory;  // percent
};
struct Memory {
  unsigned long long total, free, used;
};

class Library {
 public:
  Library() {
    void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    int (*init)() = nullptr;
    int (*count)(unsigned*) = nullptr;
    int (*by_index)(unsigned, Device*) = nullptr;
    int (*uuid)(Device, char*, unsigned) = nullptr;
    auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    const bool whole = find(init, "nvmlInit_v2") && find(count, "nvmlDeviceGetCount_v2") &&
                       find(by_index, "nvmlDeviceGetHandleByIndex_v2") && find(uuid, "nvmlDeviceGetUUID") &&
                       find(utilization, "nvmlDeviceGetUtilizationRates") &&
                       find(memory, "nvmlDeviceGetMemoryInfo") && find(power, "nvmlDeviceGetPowerUsage") &&
                       find(limit, "nvmlDeviceGetEnforcedPowerLimit") &&
                       find(energy, "nvmlDeviceGetTotalEnergyConsumption");
    unsigned devices = 0;
    if (!whole || init() != 0 || count(&devices) != 0) {
      log_warn("the GPU management library does not work: metrics have no nv_gpu families");
      return;
    }
    for (unsigned i = 0; i < devices; ++i) {
      Device device = nullptr;
      char id[96] = {};
      if (by_index(i, &device) == 0 && uuid(device, id, sizeof id) == 0)
        gpus.push_back({device, cat("{gpu_uuid=\"", escape_label(id), "\"} ")});
    }
  }

  struct Gpu {
    Device device;
    std::string labels;
  };
  std::vector<Gpu> gpus;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;             // mW
  int (*limit)(Device, unsigned*) = nullptr;             // mW
  int (*energy)(Device, unsigned long long*) = nullptr;  // mJ since the driver was loaded
};

// One family; `value` is asked for each GPU and says false where it does not know.
template <class F>
void family(std::string& out, const Library& library, std::string_view name, std::string_view type,
            std::string_view help, F&& value) {
  std::string rows;
  for (const Library::Gpu& gpu : library.gpus) {
    double v = 0;
    if (!value(gpu.device, v)) continue;
    const bool whole = v == std::floor(v);  // bytes keep all of their digits
    rows += cat(name, gpu.labels, whole ? cat(static_cast<uint64_t>(v)) : cat(v), "\n");
  }
  if (!rows.empty()) out += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n", rows);
}

}  // namespace

std::string gpu_metrics_text() {
  static const Library library;
  std::string out;
  if (library.gpus.empty()) return out;
  family(out, library, "nv_gpu_utilization", "gauge", "Share of time that the GPU was at work, 0 to 1",
         [](Device d, double& v) {
           Utilization u{};
           const bool known = library.utilization(d, &u) == 0;
           v = u.gpu / 100.0;
           return known;
         });
  Memory m{};
  family(out, library, "nv_gpu_memory_total_bytes", "gauge", "Memory of the GPU", [&](Device d, double& v) {
    const bool known = library.memory(d, &m) == 0;
    v = static_cast<double>(m.total);
    return known;
  });
  family(out, library, "nv_gpu_memory_used_bytes", "gauge", "Memory of the GPU in use",
         [&](Device d, double& v) {
           const bool known = library.memory(d, &m) == 0;
           v = static_cast<double>(m.used);
           return known;
         });
  auto watts = [](auto function) {
    return [function](Device d, double& v) {
      unsigned milliwatts = 0;
      const bool known = function(d, &milliwatts) == 0;
      v = milliwatts * 1e-3;
      return known;
    };
  };
  family(out, library, "nv_gpu_power_usage", "gauge", "Power that the GPU draws, in watts",
         watts(library.power));
  family(out, library, "nv_gpu_power_limit", "gauge", "Power that the GPU may draw, in watts",
         watts(library.limit));
  family(out, library, "nv_energy_consumption", "counter",
         "Energy that the GPU has used since the driver was loaded, in joules", [](Device d, double& v) {
           unsigned long long millijoules = 0;
           const bool known = library.energy(d, &millijoules) == 0;
           v = static_cast<double>(millijoules) * 1e-3;
           return known;
         });
  return out;
}

}  // namespace pelton::serve
