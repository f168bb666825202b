// SPDX-License-Identifier: Apache-2.0
// Bytes of requests held at one time, over all connections. The door closes before memory runs out.
#pragma once

#include <atomic>
#include <cstddef>

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

}  // namespace pelton::serve
