// SPDX-License-Identifier: Apache-2.0
#include "data/buffer_pool.h"

#include <algorithm>
#include <new>

#include "base/error.h"

namespace pelton::data {
namespace {

constexpr std::align_val_t kAlign{64};
constexpr size_t kLeastPinned = 64 << 10;  // smaller buffers are not worth pages of their own

}  // namespace

BufferPool::~BufferPool() {
  for (Block& b : spare_) drop(b);
}

void BufferPool::drop(Block& block) {
  if (block.where == Where::pageable) operator delete(block.data, kAlign);
}

BufferPool::Block BufferPool::make(size_t bytes, bool on_device) {
  Block block;
  block.bytes = bytes;
  using Place = device::Memory::Where;
  const auto size = static_cast<int64_t>(bytes);
  if (on_device) {
    device_->activate();
    block.memory = {device_, size, "a batch", Place::device};
    block.where = Where::device;
  } else if (device_ && bytes >= kLeastPinned) {
    try {
      device_->activate();
      block.memory = {device_, size, "a batch", Place::pinned};
      block.where = Where::pinned;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::out_of_memory) throw;  // a limit on pinned memory; pageable does as well
    }
  }
  block.data = block.where == Where::pageable ? static_cast<uint8_t*>(operator new(bytes, kAlign))
                                              : static_cast<uint8_t*>(block.memory.get());
  return block;
}

std::shared_ptr<uint8_t> BufferPool::take(size_t bytes, bool on_device) {
  auto block = std::make_shared<Block>();
  {
    std::lock_guard lock(mutex_);
    const auto fit = std::ranges::find_if(
        spare_, [&](const Block& b) { return b.bytes == bytes && (b.where == Where::device) == on_device; });
    if (fit != spare_.end()) {
      *block = std::move(*fit);
      *fit = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  if (!block->data) *block = make(bytes, on_device);
  return {block->data, [weak = weak_from_this(), block](uint8_t*) {
            if (auto pool = weak.lock())
              pool->put(std::move(*block));
            else
              drop(*block);
          }};
}

std::shared_ptr<uint8_t> BufferPool::get(size_t bytes) {
  return take(bytes, false);
}

std::shared_ptr<uint8_t> BufferPool::get_on_device(size_t bytes) {
  PELTON_CHECK(device_, "a pool without a device");
  return take(bytes, true);
}

void BufferPool::keep(size_t count) {
  std::lock_guard lock(mutex_);
  keep_ = count;
  for (; spare_.size() > count; spare_.pop_back()) drop(spare_.back());
}

void BufferPool::put(Block block) {
  {
    std::lock_guard lock(mutex_);
    if (spare_.size() < keep_) {
      spare_.push_back(std::move(block));
      return;
    }
  }
  drop(block);
}

}  // namespace pelton::data
