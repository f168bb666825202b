// SPDX-License-Identifier: Apache-2.0
#include "cli/energy.h"

#include "backend/cuda.h"
#include "base/cat.h"
#include "base/gpu_management.h"

namespace pelton::cli {

EnergyMeter::EnergyMeter(const device::Target& target) {
  if (target.kind != device::Kind::cuda) {
    off_ = "is measured of GPUs";
    return;
  }
  const GpuManagement& management = GpuManagement::instance();
  off_ = management.missing();
  if (!off_.empty()) return;
  const std::string uuid = backend::cuda_device_uuid(target.ordinal);
  const GpuManagement::Gpu* gpu = management.find(uuid);
  if (!gpu) {
    off_ = cat("the management library does not know ", uuid);
    return;
  }
  const std::optional<double> joules = management.joules(*gpu);
  if (!joules) {
    off_ = "the GPU does not count its energy";
    return;
  }
  gpu_ = gpu;
  begin_ = *joules;
  watch_ = Stopwatch();
}

Energy EnergyMeter::stop() const {
  Energy out;
  out.off = off_;
  if (!gpu_) return out;
  out.seconds = watch_.seconds();
  const auto joules = GpuManagement::instance().joules(*static_cast<const GpuManagement::Gpu*>(gpu_));
  if (joules && *joules > begin_)
    out.joules = *joules - begin_;
  else
    out.off = "the GPU's counter of energy did not move in this time";
  return out;
}

}  // namespace pelton::cli
