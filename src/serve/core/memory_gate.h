// SPDX-License-Identifier: Apache-2.0
// Bytes of requests, or of answers, held at one time. The door closes before memory runs out.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "base/error.h"
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
  bool has_room(size_t n) const { return n <= limit_ && used() <= limit_ - n; }
  void give_back(size_t n) { used_.fetch_sub(n, std::memory_order_relaxed); }
  size_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  const size_t limit_;
  std::atomic<size_t> used_{0};
};

// Room for that many bytes until the last owner lets go of it; null if the gate has none. The gate outlives
// it.
inline std::shared_ptr<const void> take_room(MemoryGate& gate, size_t size) {
  if (!gate.try_take(size)) return nullptr;
  return {&gate, [size](const MemoryGate* g) { const_cast<MemoryGate*>(g)->give_back(size); }};
}

// What `blob` holds counts until its last owner lets go of it; `busy` error if the gate has no room. A small
// one is left out: it hides behind the request that it was made from.
inline Blob counted(MemoryGate& gate, Blob blob) {
  constexpr size_t kSmall = 16 << 10;
  if (blob.size <= kSmall) return blob;
  auto room = take_room(gate, blob.size);
  if (!room) fail(ErrorCode::busy, "the server holds as many request bytes as it may", "", "retry later");
  const char* const data = blob.data;
  const size_t size = blob.size;
  return {data, size,
          std::make_shared<std::pair<std::shared_ptr<const void>, Blob>>(std::move(room), std::move(blob))};
}

// Memory that counts in the same way.
inline std::shared_ptr<char> allocate_leased(MemoryGate& gate, size_t size) {
  auto room = take_room(gate, size);
  if (!room) return nullptr;
  auto memory = allocate_bytes(size);
  char* const data = memory.get();
  using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<char>>;
  return {std::make_shared<Both>(std::move(room), std::move(memory)), data};
}

}  // namespace pelton::serve
