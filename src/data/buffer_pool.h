// SPDX-License-Identifier: Apache-2.0
// Batch buffers that go round: a buffer comes back when the last tensor on it is gone, so that a steady run
// neither maps fresh pages for every batch nor grows. For a device that takes the batches, host buffers are
// pinned, and there are buffers in its own memory.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"

namespace pelton::data {

class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // `device` may be null.
  explicit BufferPool(std::shared_ptr<device::Device> device = nullptr) : device_(std::move(device)) {}
  ~BufferPool();
  void keep(size_t count);                               // spare buffers at most; 0 until it is said
  std::shared_ptr<uint8_t> get(size_t bytes);            // 64-byte aligned; may outlive the pool
  std::shared_ptr<uint8_t> get_on_device(size_t bytes);  // the device's memory; may outlive the pool

 private:
  enum class Where : uint8_t { pageable, pinned, device };
  struct Block {
    uint8_t* data = nullptr;
    size_t bytes = 0;
    device::Memory memory;  // empty: pageable
    Where where = Where::pageable;
  };
  std::shared_ptr<uint8_t> take(size_t bytes, bool on_device);
  Block make(size_t bytes, bool on_device);
  static void drop(Block& block);
  void put(Block block);
  size_t keep_ = 0;
  std::shared_ptr<device::Device> device_;
  std::mutex mutex_;
  std::vector<Block> spare_;
};

}  // namespace pelton::data
