// SPDX-License-Identifier: Apache-2.0
// CUDA shared memory of clients, through the driver's library, which is opened when the first region is
// registered: a server without a GPU, or built without CUDA, says so then and not before.
#pragma once

#include "serve/core/gpu_region.h"

namespace pelton::serve {

// See OpenGpuRegion.
std::shared_ptr<const GpuRegion> open_cuda_region(std::string_view handle, int64_t device, uint64_t size);

}  // namespace pelton::serve
