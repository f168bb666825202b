// SPDX-License-Identifier: Apache-2.0
// Bytes of requests, or of answers, held at one time. The door closes before memory runs out.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "serve/core/blob.h"

namespace pelton::serve {

class MemoryGate {
 public:
  explicit MemoryGate(size_t limit) : limit_(limit) {}
  bool try_take(size_t n) {
    size_t now = used_.load(std::memory_order_relaxed);
    do {
      if (n > limit_ || now > limit_ - n) return false;
    } while (!used_.compare_exchange_weak(now, now + n, std::memory_order_relaxed));
    return true;
  }
  void give_back(size_t n) { used_.fetch_sub(n, std::memory_order_relaxed); }
  size_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  const size_t limit_;
  std::atomic<size_t> used_{0};
};

// Memory that counts until its last owner lets go of it; null if the gate has no room. The gate outlives it.
inline std::shared_ptr<char> allocate_leased(MemoryGate& gate, size_t size) {
  if (!gate.try_take(size)) return nullptr;
  struct Lease {
    MemoryGate& gate;
    size_t size;
    std::shared_ptr<char> memory;
    ~Lease() { gate.give_back(size); }
  };
  std::shared_ptr<Lease> lease;
  try {
    lease = std::make_shared<Lease>(gate, size, nullptr);
  } catch (...) {
    gate.give_back(size);
    throw;
  }
  lease->memory = allocate_bytes(size);
  char* const data = lease->memory.get();
  return {std::move(lease), data};
}

}  // namespace pelton::serve
