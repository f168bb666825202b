// SPDX-License-Identifier: Apache-2.0
#include "runtime/late_weights.h"

#include <sys/mman.h>

#include <atomic>

#include "base/error.h"

namespace pelton::runtime {

struct LateWeights::Late {
  ~Late() {
    if (at) ::munmap(at, bytes);
  }
  void* at = nullptr;
  size_t bytes = 0;
  std::function<void(void*)> fill;
  std::mutex filling;
  std::atomic<bool> filled{false};
};

LateWeights& LateWeights::instance() {
  static auto* const all = new LateWeights;  // outlives every plan, static ones too
  return *all;
}

Blob LateWeights::reserve(size_t bytes, std::function<void(void*)> fill) {
  auto late = std::make_shared<Late>();
  void* at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) fail(ErrorCode::out_of_memory, cat("no room for ", bytes, " bytes of weights"));
  late->at = at;
  late->bytes = bytes;
  late->fill = std::move(fill);
  const auto* first = static_cast<const std::byte*>(at);
  std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const auto& entry) { return entry.second.expired(); });
  all_[first] = late;
  return {{first, bytes}, late};
}

std::shared_ptr<LateWeights::Late> LateWeights::find(const void* at) {
  std::lock_guard lock(mutex_);
  auto it = all_.upper_bound(static_cast<const std::byte*>(at));
  if (it == all_.begin()) return nullptr;
  std::shared_ptr<Late> late = std::prev(it)->second.lock();
  if (!late || static_cast<const std::byte*>(at) >= std::prev(it)->first + late->bytes) return nullptr;
  return late;
}

void LateWeights::ready(const void* at) {
  const std::shared_ptr<Late> late = find(at);
  if (!late || late->filled) return;
  std::lock_guard lock(late->filling);
  if (late->filled) return;
  if (::mprotect(late->at, late->bytes, PROT_READ | PROT_WRITE) != 0)
    fail(ErrorCode::out_of_memory, cat("no memory for ", late->bytes, " bytes of weights"));
  late->fill(late->at);
  ::mprotect(late->at, late->bytes, PROT_READ);
  late->filled = true;
}

size_t LateWeights::open_bytes() {
  std::lock_guard lock(mutex_);
  size_t bytes = 0;
  for (const auto& [first, weak] : all_)
    if (const auto late = weak.lock(); late && !late->filled) bytes += late->bytes;
  return bytes;
}

}  // namespace pelton::runtime
