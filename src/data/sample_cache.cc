// SPDX-License-Identifier: Apache-2.0
#include "data/sample_cache.h"

#include <mutex>

namespace pelton::data {
namespace {

constexpr int64_t kOverhead = 512;  // of a sample: names, handles, the table's entry

int64_t bytes_of(const Tensor& t) {
  if (t.dtype() != DType::string) return t.bytes();
  int64_t n = 0;
  for (const std::string& s : t.strings()) n += std::ssize(s);
  return n;
}

}  // namespace

std::shared_ptr<const Sample> SampleCache::find(int64_t index) const {
  std::shared_lock lock(mutex_);
  const auto at = kept_.find(index);
  return at == kept_.end() ? nullptr : at->second;
}

void SampleCache::keep(Sample& s) {
  int64_t bytes = kOverhead;
  if (s.image) bytes += s.image->pixels().bytes();
  for (const auto& f : s.fields) bytes += bytes_of(f.second);
  {
    std::unique_lock lock(mutex_);
    if (bytes_ + bytes > limit_ || kept_.contains(s.index)) return;
    bytes_ += bytes;
  }
  auto copy = std::make_shared<Sample>(s);
  // A field may be a part of something larger (a shard in memory), which must not stay for its sake.
  for (auto& f : copy->fields) f.second = f.second.clone();
  if (copy->image) copy->image->replace(copy->image->pixels().clone());
  std::unique_lock lock(mutex_);
  if (!kept_.emplace(s.index, std::move(copy)).second) bytes_ -= bytes;  // another thread was faster
}

int64_t SampleCache::bytes() const {
  std::shared_lock lock(mutex_);
  return bytes_;
}

int64_t SampleCache::samples() const {
  std::shared_lock lock(mutex_);
  return std::ssize(kept_);
}

}  // namespace pelton::data
