// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that a client shares with the server. Whoever knows the driver provides it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

namespace pelton::serve {

class GpuRegion {
 public:
  virtual ~GpuRegion() = default;
  // Copies between the region and host memory; return when the copy is done. The range lies in the region.
  virtual void read(void* to, size_t offset, size_t size) const = 0;
  virtual void write(const void* from, size_t offset, size_t size) const = 0;
};

// Opens `size` bytes by the handle that the client's driver gave out (64 bytes). no_device without a GPU or
// driver, bad_name for a handle that is none.
using OpenGpuRegion =
    std::function<std::shared_ptr<const GpuRegion>(std::string_view handle, int64_t device, uint64_t size)>;

}  // namespace pelton::serve
