// SPDX-License-Identifier: Apache-2.0
// Batch buffers that go round: a buffer comes back when the last tensor on it is gone, so that a steady run
// neither maps fresh pages for every batch nor grows.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace pelton::data {

class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  explicit BufferPool(size_t keep) : keep_(keep) {}  // spare buffers kept
  ~BufferPool();
  std::shared_ptr<uint8_t> get(size_t bytes);  // 64-byte aligned; may outlive the pool

 private:
  void put(uint8_t* data, size_t bytes);
  size_t keep_;
  std::mutex mutex_;
  std::vector<std::pair<uint8_t*, size_t>> spare_;
};

}  // namespace pelton::data
