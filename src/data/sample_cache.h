// SPDX-License-Identifier: Apache-2.0
// Samples kept between epochs, within a number of bytes. What no longer fits is not kept: epochs visit every
// sample once, so throwing out an older one for a newer one would gain nothing.
#pragma once

#include <memory>
#include <shared_mutex>
#include <unordered_map>

#include "data/sample.h"

namespace pelton::data {

class SampleCache {
 public:
  explicit SampleCache(int64_t limit_bytes) : limit_(limit_bytes) {}
  // Null when it is not kept. Any thread.
  std::shared_ptr<const Sample> find(int64_t index) const;
  // Keeps a copy of its own if it fits; a pending picture is made into pixels first, if it is decoded at all.
  void keep(Sample& sample);
  int64_t bytes() const;
  int64_t samples() const;

 private:
  int64_t limit_;
  mutable std::shared_mutex mutex_;
  int64_t bytes_ = 0;
  std::unordered_map<int64_t, std::shared_ptr<const Sample>> kept_;
};

}  // namespace pelton::data
