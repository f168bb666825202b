// SPDX-License-Identifier: Apache-2.0
#include "data/device_pass.h"

namespace pelton::data {

DevicePass::DevicePass(std::shared_ptr<device::Device> device, int64_t lanes, bool files)
    : device_(std::move(device)) {
  auto* decoding = dynamic_cast<device::PictureDevice*>(device_.get());
  if (!decoding)
    fail(ErrorCode::no_device, cat("device = \"gpu\": ", device_->target().name, " takes no pictures"));
  decoding_ = decoding;
  device_->activate();
  for (int64_t i = 0; i < lanes; ++i) {
    decoders_.push_back(decoding->make_picture_decoder(files));
    streams_.push_back(device_->make_stream());
  }
  for (size_t i = 0; i < streams_.size(); ++i)
    threads_.emplace_back([this, i] { serve({*decoders_[i], *streams_[i]}); });
}

DevicePass::~DevicePass() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    queue_.clear();
  }
  changed_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void DevicePass::submit(std::function<void(DeviceLane)> work) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.notify_one();
}

void DevicePass::serve(DeviceLane lane) {
  device_->activate();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    auto work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work(lane);
    work = nullptr;
    lock.lock();
  }
}

}  // namespace pelton::data
