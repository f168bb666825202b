// SPDX-License-Identifier: Apache-2.0
// The one place that names concrete back ends.
#pragma once

#include <string>
#include <vector>

#include "backend/kernel.h"
#include "device/target.h"

namespace pelton {

// Every implementation of this build, best first within an op. Filled on first use.
const backend::Registry& registry();

// "cpu", "cuda", "cuda:1" or "auto". An explicit device is there or the call fails with no_device; auto takes
// the best there is and puts into `note` why it took no better one.
device::Target find_device(const std::string& device, int threads, std::string* note = nullptr);

// The GPUs that can be used; `why` says what is in the way of others.
std::vector<device::Target> find_gpus(std::string& why);
// Libraries of the device back ends of this build, with versions or why they are off.
struct DeviceLibrary {
  std::string name, version, off;
};
std::vector<DeviceLibrary> device_libraries();

}  // namespace pelton
