// SPDX-License-Identifier: Apache-2.0
// Samples kept between epochs, within a number of bytes. What no longer fits is not kept: epochs visit every
// sample once, so throwing out an older one for a newer one would gain nothing.
#pragma once

#include <memory>
#include <shared_mutex>
#include <unordered_map>

#include "data/sample.h"

namespace pelton::data {

class SampleCache : public std::enable_shared_from_this<SampleCache> {
 public:
  virtual ~SampleCache() = default;
  // Null when it is not kept. Any thread.
  std::shared_ptr<const Sample> find(int64_t index) const;
  // Keeps a copy if it fits; what the sample is from here on does not depend on that. Any thread.
  virtual void keep(Sample& sample) = 0;
  int64_t bytes() const;
  int64_t samples() const;

 protected:
  explicit SampleCache(int64_t limit_bytes) : limit_(limit_bytes) {}
  static int64_t bytes_beside(const Sample& sample);  // all that it takes in host memory but the picture
  // A field may be a part of something larger (a shard in memory), which must not stay for its sake.
  static void own_fields(Sample& sample);
  bool reserve(int64_t index, int64_t bytes);  // false: no room, or kept already
  void add(std::shared_ptr<const Sample> sample, int64_t reserved);

 private:
  int64_t limit_;
  mutable std::shared_mutex mutex_;
  int64_t bytes_ = 0;
  std::unordered_map<int64_t, std::shared_ptr<const Sample>> kept_;
};

// In host memory. A pending picture is made into pixels first, if it is decoded at all.
std::shared_ptr<SampleCache> host_cache(int64_t limit_bytes);

// In the memory of a device that decodes pictures, all of which is taken now: an out_of_memory error when it
// does not fit. The sample has a picture. From here on that is the device's, kept or not, so that its values
// do not depend on what fits: decoded by the device if the decode stage says so and it can be, else by the
// host before. It is kept when the device has it.
std::shared_ptr<SampleCache> device_cache(int64_t limit_bytes, std::shared_ptr<device::Device> device);

}  // namespace pelton::data
