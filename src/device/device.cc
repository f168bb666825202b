// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include <map>
#include <mutex>
#include <utility>

#include "device/pinned.h"

namespace pelton::device {
namespace {

// Pinned memory by its first byte. Never destroyed: Memory of static lifetime ends after it.
struct PinnedRanges {
  std::mutex mutex;
  std::map<const std::byte*, int64_t> ranges;
};
PinnedRanges& pinned() {
  static auto* const known = new PinnedRanges;
  return *known;
}

}  // namespace

bool is_pinned(const void* at, int64_t bytes) {
  const auto* first = static_cast<const std::byte*>(at);
  PinnedRanges& known = pinned();
  std::lock_guard lock(known.mutex);
  auto it = known.ranges.upper_bound(first);
  return it != known.ranges.begin() && (--it, first + bytes <= it->first + it->second);
}

Memory::Memory(std::shared_ptr<Device> device, int64_t bytes, std::string_view what, Where where)
    : device_(std::move(device)), bytes_(bytes), where_(where) {
  if (bytes <= 0) return;
  if (where == Where::device) {
    at_ = device_->allocate(bytes, what);
    return;
  }
  at_ = device_->allocate_pinned(bytes, what);
  std::lock_guard lock(pinned().mutex);
  pinned().ranges[bytes_at(0)] = bytes;
}

Memory::~Memory() {
  drop();
}

void Memory::drop() noexcept {
  if (!at_) return;
  if (where_ == Where::device) {
    device_->release(at_);
  } else {
    {
      std::lock_guard lock(pinned().mutex);
      pinned().ranges.erase(bytes_at(0));
    }
    device_->release_pinned(at_);
  }
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
