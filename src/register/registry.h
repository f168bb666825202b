// SPDX-License-Identifier: Apache-2.0
// The one place that names concrete back ends.
#pragma once

#include <string>

#include "backend/kernel.h"
#include "device/target.h"

namespace pelton {

// Every implementation of this build, best first within an op. Filled on first use.
const backend::Registry& registry();

// "cpu", "cuda", "cuda:1" or "auto". An explicit device is there or the call fails with no_device; auto takes
// the best there is and puts into `note` why it took no better one.
device::Target find_device(const std::string& device, int threads, std::string* note = nullptr);

}  // namespace pelton
