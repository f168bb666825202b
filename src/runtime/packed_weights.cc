// SPDX-License-Identifier: Apache-2.0
#include "runtime/packed_weights.h"

#include <algorithm>

#include "base/huge_pages.h"
#include "runtime/late_weights.h"

namespace pelton::runtime {

PackedWeights& PackedWeights::instance() {
  static PackedWeights all;
  return all;
}

std::shared_ptr<const Tensor> PackedWeights::find(const void* source, std::string_view order, int64_t bytes) {
  auto [at, last] = entries_.equal_range(source);
  while (at != last) {
    const Entry& e = at->second;
    const std::shared_ptr<const void> alive = e.alive.lock();
    if (!alive || e.gone()) {
      at = entries_.erase(at);
      continue;
    }
    if (e.order == order && static_cast<int64_t>(e.bytes.size()) == bytes)
      return std::make_shared<const Tensor>(Tensor::borrow(DType::u8, {bytes}, e.bytes.data(), alive));
    ++at;
  }
  return nullptr;
}

std::shared_ptr<const Tensor> PackedWeights::get(const Tensor& source, const std::string& order,
                                                 int64_t bytes, FunctionRef<void(void*)> make) {
  {
    std::lock_guard lock(mutex_);
    if (auto found = find(source.data(), order, bytes)) {
      if (recording_) recorded_.push_back({source, order, found});
      return found;
    }
  }
  LateWeights::instance().ready(source.data());  // `make` reads it
  // Not under the lock: the pool may run another preparation on this thread meanwhile.
  struct Held {
    Tensor source, bytes;
  };
  auto held = std::make_shared<Held>(Held{source, Tensor(DType::u8, {bytes})});
  void* to = held->bytes.mutable_data();
  prefer_huge_pages(to, static_cast<size_t>(bytes));
  make(to);
  std::shared_ptr<const Tensor> made(held, &held->bytes);
  std::lock_guard lock(mutex_);
  remember(source.data(),
           {order, {static_cast<const std::byte*>(to), static_cast<size_t>(bytes)}, held, {}, false});
  if (recording_) recorded_.push_back({source, order, made});
  return made;
}

void PackedWeights::add(const std::shared_ptr<const Blob>& source, std::string order, const Blob& packed) {
  std::lock_guard lock(mutex_);
  remember(source->bytes.data(), {std::move(order), packed.bytes, packed.owner, source, true});
}

// A process that loads plan after plan keeps no more than twice what lives.
void PackedWeights::remember(const void* source, Entry entry) {
  if (entries_.size() >= most_) {
    std::erase_if(entries_, [](const auto& e) { return e.second.gone(); });
    most_ = std::max<size_t>(256, 2 * entries_.size());
  }
  entries_.emplace(source, std::move(entry));
}

void PackedWeights::declare(std::string_view implementation) {
  std::lock_guard lock(mutex_);
  declared_.emplace(implementation);
}

bool PackedWeights::only_packs(std::string_view implementation) {
  std::lock_guard lock(mutex_);
  return declared_.find(implementation) != declared_.end();
}

size_t PackedWeights::known() {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

void PackedWeights::record() {
  std::lock_guard lock(mutex_);
  recording_ = true;
}

std::vector<Packed> PackedWeights::take() {
  std::lock_guard lock(mutex_);
  recording_ = false;
  return std::exchange(recorded_, {});
}

}  // namespace pelton::runtime
