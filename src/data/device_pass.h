// SPDX-License-Identifier: Apache-2.0
// Threads that decode and resample on a device for a pipeline. Each has a decoder and a stream of its own and
// mostly waits, so that the pool's threads never do.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "device/device.h"
#include "device/picture_decoder.h"

namespace pelton::data {

struct DeviceLane {
  device::PictureDecoder& decoder;
  device::Stream& stream;
};

class DevicePass {
 public:
  // A no_device error says what is missing. `files`: the device decodes, not only pixels come.
  DevicePass(std::shared_ptr<device::Device> device, int64_t lanes, bool files);
  ~DevicePass();  // drops what has not begun
  DevicePass(const DevicePass&) = delete;
  // Any thread. `work` runs on a thread of the pass, with the device current; it does not throw.
  void submit(std::function<void(DeviceLane)> work);
  const device::PictureDevice& pictures() const { return *decoding_; }

 private:
  void serve(DeviceLane lane);
  std::shared_ptr<device::Device> device_;
  const device::PictureDevice* decoding_ = nullptr;  // the same
  std::vector<std::unique_ptr<device::PictureDecoder>> decoders_;
  std::vector<std::unique_ptr<device::Stream>> streams_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void(DeviceLane)>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace pelton::data
