// SPDX-License-Identifier: Apache-2.0
#include "base/gpu_management.h"

#include <dlfcn.h>

#include "base/cat.h"

namespace pelton {

const GpuManagement& GpuManagement::instance() {
  static const auto* const opened = new GpuManagement;
  return *opened;
}

GpuManagement::GpuManagement() {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    missing_ = "libnvidia-ml.so.1 is not there";
    return;
  }
  int (*init)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, void**) = nullptr;
  int (*uuid)(void*, char*, unsigned) = nullptr;
  auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
    if (!function && missing_.empty()) missing_ = cat("libnvidia-ml.so.1 lacks the function ", name);
  };
  find(init, "nvmlInit_v2");
  find(count, "nvmlDeviceGetCount_v2");
  find(by_index, "nvmlDeviceGetHandleByIndex_v2");
  find(uuid, "nvmlDeviceGetUUID");
  find(utilization_, "nvmlDeviceGetUtilizationRates");
  find(memory_, "nvmlDeviceGetMemoryInfo");
  find(power_, "nvmlDeviceGetPowerUsage");
  find(limit_, "nvmlDeviceGetEnforcedPowerLimit");
  find(energy_, "nvmlDeviceGetTotalEnergyConsumption");
  if (!missing_.empty()) return;
  unsigned devices = 0;
  if (const int status = init(); status != 0) {
    missing_ = cat("libnvidia-ml.so.1 does not start (", status, ")");
    return;
  }
  if (count(&devices) != 0) devices = 0;
  for (unsigned i = 0; i < devices; ++i) {
    void* handle = nullptr;
    char id[96] = {};
    if (by_index(i, &handle) == 0 && uuid(handle, id, sizeof id) == 0) gpus_.push_back({handle, id});
  }
  if (gpus_.empty()) missing_ = "libnvidia-ml.so.1 finds no GPU";
}

const GpuManagement::Gpu* GpuManagement::find(const std::string& uuid) const {
  for (const Gpu& gpu : gpus_)
    if (gpu.uuid == uuid) return &gpu;
  return nullptr;
}

namespace {

template <class T>
std::optional<double> thousandth(int (*function)(void*, T*), const GpuManagement::Gpu& gpu) {
  T value = 0;
  if (!function || function(gpu.handle, &value) != 0) return {};
  return static_cast<double>(value) * 1e-3;
}

}  // namespace

std::optional<double> GpuManagement::utilization(const Gpu& gpu) const {
  unsigned shares[2] = {};
  if (!utilization_ || utilization_(gpu.handle, &shares) != 0) return {};
  return shares[0] / 100.0;
}
std::optional<double> GpuManagement::watts(const Gpu& gpu) const {
  return thousandth(power_, gpu);
}
std::optional<double> GpuManagement::watts_allowed(const Gpu& gpu) const {
  return thousandth(limit_, gpu);
}
std::optional<double> GpuManagement::joules(const Gpu& gpu) const {
  return thousandth(energy_, gpu);
}
std::optional<GpuManagement::Memory> GpuManagement::memory(const Gpu& gpu) const {
  unsigned long long sizes[3] = {};
  if (!memory_ || memory_(gpu.handle, &sizes) != 0) return {};
  return Memory{sizes[0], sizes[2]};
}

}  // namespace pelton
