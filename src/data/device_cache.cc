// SPDX-License-Identifier: Apache-2.0
// The cache in a device's memory: of a sample, the picture's pixels lie there, the rest in the host's. Pixels
// come there with the batch that the device first puts together from them (image/device_pixels.h).
#include <map>
#include <mutex>

#include "data/sample_cache.h"

namespace pelton::data {
namespace {

constexpr int64_t kAlign = 256;

// The cache's memory, taken at once, so that what does not fit on the device is told at the start and nothing
// that comes later can take it away. Places that are given back are used again.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  Arena(std::shared_ptr<device::Device> device, int64_t bytes)
      : memory_(std::move(device), bytes, "cached samples") {}
  // Null when nothing is left.
  std::shared_ptr<uint8_t> take(int64_t bytes) {
    bytes = (bytes + kAlign - 1) / kAlign * kAlign;
    std::lock_guard lock(mutex_);
    std::byte* at = nullptr;
    if (const auto spare = spare_.find(bytes); spare != spare_.end()) {
      at = spare->second;
      spare_.erase(spare);
    } else if (bytes <= memory_.bytes() - used_) {
      at = memory_.bytes_at(used_);
      used_ += bytes;
    } else {
      return nullptr;
    }
    return {reinterpret_cast<uint8_t*>(at), [self = shared_from_this(), at, bytes](uint8_t*) {
              std::lock_guard inner(self->mutex_);
              self->spare_.emplace(bytes, at);
            }};
  }

 private:
  device::Memory memory_;
  std::mutex mutex_;
  int64_t used_ = 0;
  std::multimap<int64_t, std::byte*> spare_;  // by size
};

class DeviceCache : public SampleCache {
 public:
  DeviceCache(int64_t limit, std::shared_ptr<device::Device> device)
      : SampleCache(limit), device_(std::move(device)) {
    device_->activate();
    try {
      arena_ = std::make_shared<Arena>(device_, limit);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::out_of_memory) throw;
      fail(ErrorCode::out_of_memory,
           cat("a cache of ", limit >> 20, " MiB does not fit on ", device_->target().name, ", where ",
               device_->free_bytes() >> 20, " MiB are free"),
           "", "lower memory_mib: samples that do not fit are made again");
    }
  }

  void keep(Sample& s) override {
    LazyImage& picture = s.picture();
    picture.leave_to_device();
    const int64_t pixels = picture.source_bytes();
    const DevicePixels place{device_, arena_->take(pixels)};
    if (!place) return;
    Sample kept = s;
    own_fields(kept);
    kept.image = picture.with_pixels(place);
    picture.keep_by(std::make_shared<Keeper>(*this, std::move(kept), place.memory, pixels + bytes_beside(s)));
  }

 private:
  class Keeper : public PixelKeeper {
   public:
    Keeper(DeviceCache& cache, Sample sample, std::shared_ptr<uint8_t> memory, int64_t bytes)
        : cache_(std::static_pointer_cast<DeviceCache>(cache.shared_from_this())),
          sample_(std::make_shared<const Sample>(std::move(sample))),
          memory_(std::move(memory)),
          bytes_(bytes) {}
    uint8_t* memory() const override { return memory_.get(); }
    void filled() override {
      if (const auto cache = cache_.lock(); cache && cache->reserve(sample_->index, bytes_))
        cache->add(sample_, bytes_);
    }

   private:
    std::weak_ptr<DeviceCache> cache_;
    std::shared_ptr<const Sample> sample_;
    std::shared_ptr<uint8_t> memory_;
    int64_t bytes_;
  };

  std::shared_ptr<device::Device> device_;
  std::shared_ptr<Arena> arena_;
};

}  // namespace

std::shared_ptr<SampleCache> device_cache(int64_t limit_bytes, std::shared_ptr<device::Device> device) {
  return std::make_shared<DeviceCache>(limit_bytes, std::move(device));
}

}  // namespace pelton::data
