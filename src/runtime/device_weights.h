// SPDX-License-Identifier: Apache-2.0
// Weights in device memory, shared between the plans of this process: one copy for each device and host copy.
// Equal weights of plan files have one host copy already (WeightStore).
#pragma once

#include <memory>

#include "device/device.h"
#include "tensor/tensor.h"

namespace pelton::runtime {

// The tensor's bytes on the device, copied there unless they are. The tensor lives as long as its copy. Any
// thread.
std::shared_ptr<const device::Memory> share_on_device(const std::shared_ptr<device::Device>& device,
                                                      const Tensor& tensor);

}  // namespace pelton::runtime
