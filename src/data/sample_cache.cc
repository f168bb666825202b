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

class HostCache : public SampleCache {
 public:
  explicit HostCache(int64_t limit) : SampleCache(limit) {}
  void keep(Sample& s) override {
    const int64_t bytes = bytes_beside(s) + (s.image ? s.image->pixels().bytes() : 0);
    if (!reserve(s.index, bytes)) return;
    auto copy = std::make_shared<Sample>(s);
    own_fields(*copy);
    if (copy->image) copy->image->replace(copy->image->pixels().clone());
    add(std::move(copy), bytes);
  }
};

}  // namespace

std::shared_ptr<SampleCache> host_cache(int64_t limit_bytes) {
  return std::make_shared<HostCache>(limit_bytes);
}

std::shared_ptr<const Sample> SampleCache::find(int64_t index) const {
  std::shared_lock lock(mutex_);
  const auto at = kept_.find(index);
  return at == kept_.end() ? nullptr : at->second;
}

int64_t SampleCache::bytes_beside(const Sample& s) {
  int64_t bytes = kOverhead;
  for (const auto& f : s.fields) bytes += bytes_of(f.second);
  return bytes;
}

void SampleCache::own_fields(Sample& s) {
  for (auto& f : s.fields) f.second = f.second.clone();
}

bool SampleCache::reserve(int64_t index, int64_t bytes) {
  std::unique_lock lock(mutex_);
  if (bytes_ + bytes > limit_ || kept_.contains(index)) return false;
  bytes_ += bytes;
  return true;
}

void SampleCache::add(std::shared_ptr<const Sample> sample, int64_t reserved) {
  std::unique_lock lock(mutex_);
  const int64_t index = sample->index;
  if (!kept_.emplace(index, std::move(sample)).second) bytes_ -= reserved;  // another thread was faster
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
