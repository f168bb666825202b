// SPDX-License-Identifier: Apache-2.0
// Pixels of a picture in a device's memory, and where they may stay.
#pragma once

#include <cstdint>
#include <memory>

#include "device/device.h"

namespace pelton::data {

struct DevicePixels {  // u8 [height, width, channels], dense
  std::shared_ptr<device::Device> device;
  std::shared_ptr<uint8_t> memory;
  explicit operator bool() const { return memory != nullptr; }
};

// Memory of a device for the pixels of one picture, which are still to be made.
class PixelKeeper {
 public:
  virtual ~PixelKeeper() = default;
  virtual uint8_t* memory() const = 0;
  virtual void filled() = 0;  // the pixels are there; any thread
};

}  // namespace pelton::data
