// SPDX-License-Identifier: Apache-2.0
#include "data/buffer_pool.h"

#include <new>

namespace pelton::data {
namespace {
constexpr std::align_val_t kAlign{64};
}

BufferPool::~BufferPool() {
  for (auto& [data, bytes] : spare_) operator delete(data, kAlign);
}

std::shared_ptr<uint8_t> BufferPool::get(size_t bytes) {
  uint8_t* data = nullptr;
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < spare_.size(); ++i)
      if (spare_[i].second == bytes) {
        data = spare_[i].first;
        spare_[i] = spare_.back();
        spare_.pop_back();
        break;
      }
  }
  if (!data) data = static_cast<uint8_t*>(operator new(bytes, kAlign));
  return {data, [weak = weak_from_this(), bytes](uint8_t* p) {
            if (auto pool = weak.lock())
              pool->put(p, bytes);
            else
              operator delete(p, kAlign);
          }};
}

void BufferPool::put(uint8_t* data, size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    if (spare_.size() < keep_) {
      spare_.emplace_back(data, bytes);
      return;
    }
  }
  operator delete(data, kAlign);
}

}  // namespace pelton::data
