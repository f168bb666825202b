// SPDX-License-Identifier: Apache-2.0
#include "runtime/weight_store.h"

#include <map>
#include <mutex>

namespace pelton::runtime {

struct WeightStore::Table {
  mutable std::mutex mutex;
  std::map<Digest, std::weak_ptr<const Blob>> blobs;
  size_t swept_at = 64;  // entries at which dead ones are looked for
};

WeightStore::WeightStore() : table_(std::make_unique<Table>()) {}
WeightStore::~WeightStore() = default;

WeightStore& WeightStore::instance() {
  static auto* const store = new WeightStore;  // outlives every plan, static ones too
  return *store;
}

std::shared_ptr<const Blob> WeightStore::share(const Digest& digest, Blob blob) {
  Table& t = *table_;
  std::lock_guard lock(t.mutex);
  auto& known = t.blobs[digest];
  if (auto alive = known.lock(); alive && alive->bytes.size() == blob.bytes.size()) return alive;
  auto made = std::make_shared<const Blob>(std::move(blob));
  known = made;
  if (t.blobs.size() > t.swept_at) {
    std::erase_if(t.blobs, [](const auto& item) { return item.second.expired(); });
    t.swept_at = std::max<size_t>(64, 2 * t.blobs.size());
  }
  return made;
}

int64_t WeightStore::bytes() const {
  std::lock_guard lock(table_->mutex);
  int64_t sum = 0;
  for (const auto& [digest, weak] : table_->blobs)
    if (auto blob = weak.lock()) sum += static_cast<int64_t>(blob->bytes.size());
  return sum;
}

}  // namespace pelton::runtime
