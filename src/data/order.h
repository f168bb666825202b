// SPDX-License-Identifier: Apache-2.0
// Which sample comes when. Everything here is a pure function of (seed, epoch, shard, position), so a place
// in an epoch is two numbers and any worker can work out what any other one reads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pelton::data {

// What fills the last batches of an epoch, so that all shards take the same number of steps:
//   fill     samples of the same shard once more, from its start; every step is a whole batch
//   drop     steps that not every shard could fill with whole batches are left out
//   partial  every sample exactly once; the last batches are shorter. A shard that would have no sample at
//   all in
//            the last step repeats one of its own, marked as padding, so that no batch is empty.
enum class LastBatch : uint8_t { fill, drop, partial };

struct OrderOptions {
  int64_t samples = 0;  // N
  int64_t batch = 1;    // B, a shard
  int64_t shards = 1, shard = 0;
  uint64_t seed = 0;
  bool shuffle = false;
  LastBatch last = LastBatch::partial;
  bool stick = false;  // a shard keeps its samples in every epoch (for caches); else they move round
  // Shuffles blocks of so many neighbours, and within each: reading stays nearly in order. 0: all samples.
  int64_t window = 0;
  // Sorts the samples of so many batches by size and gives the batches in random order, so that the samples
  // of a batch differ little. The last batch of an epoch stays as it is. 0: off.
  int64_t bucket = 0;
  std::shared_ptr<const std::vector<int64_t>> sizes;  // by index, for bucket
};

// A random bijection of 0 .. n-1, computed without a table.
class Permutation {
 public:
  Permutation(uint64_t seed, uint64_t stream, int64_t n);
  int64_t operator()(int64_t i) const;

 private:
  uint64_t seed_, stream_;
  int64_t n_;
  uint32_t half_bits_;
};

class Order {
 public:
  explicit Order(OrderOptions options);              // usage error when there is nothing to read
  int64_t steps() const { return steps_; }           // an epoch, the same for every shard
  int64_t count(int64_t epoch, int64_t step) const;  // samples of a step: B, or fewer in partial's last
  struct Item {
    int64_t index;  // of the sample
    bool padding;   // repeated only to keep steps equal
  };
  Item at(int64_t epoch, int64_t step, int64_t i) const;
  // Samples of this shard in an epoch, and the k-th of them before any sorting.
  int64_t shard_samples(int64_t epoch) const;
  int64_t of_shard(int64_t epoch, int64_t k) const;
  // "1281167 samples in 8 shards of 160145 or 160146: 626 steps of 256, 40 repeated, 0 dropped"
  std::string str() const;
  const OrderOptions& options() const { return o_; }

 private:
  int64_t begin(int64_t shard) const;  // floor(shard * N / S)
  int64_t shard_of(int64_t epoch) const;
  int64_t shuffled(int64_t epoch, int64_t place) const;
  Item unsorted(int64_t epoch, int64_t step, int64_t i) const;
  struct Group;  // the batches that were sorted last
  OrderOptions o_;
  std::shared_ptr<Group> group_;
  int64_t steps_ = 0, largest_ = 0, smallest_ = 0;
};

}  // namespace pelton::data
