// SPDX-License-Identifier: Apache-2.0
// NVIDIA's management library: what GPUs draw, use and hold. Opened at its first use; a machine without it
// has no GPUs here, and `missing` says why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pelton {

class GpuManagement {
 public:
  static const GpuManagement& instance();  // any thread

  struct Gpu {
    void* handle;
    std::string uuid;  // "GPU-..."
  };
  const std::vector<Gpu>& gpus() const { return gpus_; }
  const std::string& missing() const { return missing_; }  // why gpus() is empty
  const Gpu* find(const std::string& uuid) const;

  // Nothing where the GPU does not tell.
  std::optional<double> utilization(const Gpu& gpu) const;    // share of time at work, 0 to 1
  std::optional<double> watts(const Gpu& gpu) const;          // drawn now
  std::optional<double> watts_allowed(const Gpu& gpu) const;  // the enforced limit
  std::optional<double> joules(const Gpu& gpu) const;         // used since the driver was loaded
  struct Memory {
    uint64_t total = 0, used = 0;  // bytes
  };
  std::optional<Memory> memory(const Gpu& gpu) const;

 private:
  GpuManagement();
  std::vector<Gpu> gpus_;
  std::string missing_;
  // Of the published interface; they return 0 when they have an answer.
  int (*utilization_)(void*, unsigned (*)[2]) = nullptr;  // GPU and memory, percent
  int (*power_)(void*, unsigned*) = nullptr, (*limit_)(void*, unsigned*) = nullptr;  // mW
  int (*energy_)(void*, unsigned long long*) = nullptr;                              // mJ
  int (*memory_)(void*, unsigned long long (*)[3]) = nullptr;                        // total, free, used
};

}  // namespace pelton
