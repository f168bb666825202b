// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include <utility>

namespace pelton::device {

Memory::Memory(std::shared_ptr<Device> device, int64_t bytes, std::string_view what, Where where)
    : device_(std::move(device)), bytes_(bytes), where_(where) {
  if (bytes <= 0) return;
  at_ = where == Where::device ? device_->allocate(bytes, what) : device_->allocate_pinned(bytes, what);
}

Memory::~Memory() {
  drop();
}

void Memory::drop() noexcept {
  if (!at_) return;
  if (where_ == Where::device)
    device_->release(at_);
  else
    device_->release_pinned(at_);
  at_ = nullptr;
}

Memory::Memory(Memory&& other) noexcept
    : device_(std::move(other.device_)),
      at_(std::exchange(other.at_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      where_(other.where_) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  if (this != &other) {
    drop();
    device_ = std::move(other.device_);
    at_ = std::exchange(other.at_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    where_ = other.where_;
  }
  return *this;
}

}  // namespace pelton::device
