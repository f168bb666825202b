// SPDX-License-Identifier: Apache-2.0
// Randomness of one stage on one sample: a pure function of (seed, epoch, sample index, stage, slot), so that
// thread count, batch size, sharding and restarts never change what a sample becomes.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace pelton::data {

class Draw {
 public:
  Draw(uint64_t seed, uint64_t epoch, uint64_t index, uint32_t stage)
      : seed_(seed), epoch_(epoch), index_(index), stage_(stage) {}

  // Each slot is one independent draw; an op numbers its own slots (below 1 << 16).
  uint64_t bits(uint32_t slot) const;
  double uniform(uint32_t slot) const;  // [0, 1), 53 bits
  double uniform(uint32_t slot, double low, double high) const { return low + (high - low) * uniform(slot); }
  double normal(uint32_t slot) const;             // mean 0, deviation 1
  int64_t below(uint32_t slot, int64_t n) const;  // 0 .. n-1
  bool coin(uint32_t slot, double p) const { return uniform(slot) < p; }
  // `count` consecutive raw words of a slot's own stream, for noise over many elements.
  PhiloxBlock block(uint32_t slot, uint32_t block_index) const;

 private:
  uint64_t seed_, epoch_, index_;
  uint32_t stage_;
};

}  // namespace pelton::data
