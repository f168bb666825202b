// SPDX-License-Identifier: Apache-2.0
#include "data/order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/philox.h"

namespace pelton::data {

Permutation::Permutation(uint64_t seed, uint64_t stream, int64_t n) : seed_(seed), stream_(stream), n_(n) {
  const int bits = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(n - 1, 1)));
  half_bits_ = static_cast<uint32_t>((bits + 1) / 2);
}

// A Feistel network over the next even power of two; positions outside 0 .. n-1 walk on until they come back.
int64_t Permutation::operator()(int64_t i) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t v = static_cast<uint64_t>(i);
  do {
    uint64_t left = v >> half_bits_, right = v & mask;
    for (uint32_t round = 0; round < 6; ++round) {
      const PhiloxBlock w = philox4x32_10({static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32),
                                           round, static_cast<uint32_t>(stream_)},
                                          {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
      const uint64_t mixed = (uint64_t{w[1]} << 32 | w[0]) & mask;
      left = std::exchange(right, left ^ mixed);
    }
    v = left << half_bits_ | right;
  } while (v >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(v);
}

struct Order::Group {
  std::mutex mutex;
  int64_t epoch = -1, first = -1;
  std::vector<int64_t> indices;  // of all its batches
};

Order::Order(OrderOptions given) : o_(std::move(given)), group_(std::make_shared<Group>()) {
  const OrderOptions& o = o_;
  if (o.stick && o.window > 0)
    fail(ErrorCode::usage, "shuffle_window together with shards that keep their samples", "",
         "leave one of them out");
  PELTON_CHECK(o.bucket == 0 || (o.sizes && static_cast<int64_t>(o.sizes->size()) == o.samples),
               "bucketing without sizes");
  if (o.samples < 1) fail(ErrorCode::usage, "the source has no samples");
  if (o.batch < 1) fail(ErrorCode::usage, cat("the batch size is ", o.batch));
  if (o.shards < 1 || o.shard < 0 || o.shard >= o.shards)
    fail(ErrorCode::usage, cat("shard ", o.shard, " of ", o.shards, " does not exist"), "",
         "shards count from 0");
  if (o.samples < o.shards)
    fail(ErrorCode::usage, cat(o.samples, " samples cannot feed ", o.shards, " shards"), "",
         "use fewer shards or more samples");
  smallest_ = o.samples / o.shards;
  largest_ = (o.samples + o.shards - 1) / o.shards;
  steps_ = o.last == LastBatch::drop ? smallest_ / o.batch : (largest_ + o.batch - 1) / o.batch;
  if (steps_ == 0)
    fail(ErrorCode::usage, cat("shards of ", smallest_, " samples hold no whole batch of ", o.batch), "",
         "use a smaller batch, or do not drop what fills none");
}

int64_t Order::begin(int64_t shard) const {
  return static_cast<int64_t>(static_cast<__int128>(shard) * o_.samples / o_.shards);
}

// Without stick, the part of the order that a worker reads moves on by one every epoch.
int64_t Order::shard_of(int64_t epoch) const {
  return o_.stick ? o_.shard : (o_.shard + epoch) % o_.shards;
}

int64_t Order::count(int64_t epoch, int64_t step) const {
  if (o_.last != LastBatch::partial) return o_.batch;
  return std::clamp<int64_t>(shard_samples(epoch) - step * o_.batch, 1, o_.batch);
}

// The sample at a place of the epoch's order.
int64_t Order::shuffled(int64_t epoch, int64_t place) const {
  const int64_t n = o_.samples, w = o_.window;
  const auto stream = static_cast<uint64_t>(epoch);
  if (w <= 0 || w >= n) return Permutation(o_.seed, stream, n)(place);
  // Where blocks begin moves from epoch to epoch, so the last, shorter one is never the same.
  const int64_t shift = Permutation(o_.seed ^ 0xd1b54a32d192ed03u, stream, n)(0), blocks = n / w;
  const int64_t block =
      place < blocks * w ? Permutation(o_.seed ^ 0x94d049bb133111ebu, stream, blocks)(place / w) : blocks;
  const int64_t size = block == blocks ? n - blocks * w : w;
  const Permutation inner(o_.seed + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(block + 1), stream, size);
  return (shift + block * w + inner(place % w)) % n;
}

int64_t Order::shard_samples(int64_t epoch) const {
  const int64_t shard = shard_of(epoch);
  return begin(shard + 1) - begin(shard);
}

int64_t Order::of_shard(int64_t epoch, int64_t k) const {
  const int64_t first = begin(shard_of(epoch));
  if (!o_.shuffle) return first + k;
  if (!o_.stick) return shuffled(epoch, first + k);
  // Epoch 2^32 - 1 of the seed's streams orders the samples once for all when shards keep theirs.
  const Permutation global(o_.seed, 0xffffffffu, o_.samples),
      inner(o_.seed ^ 0x9e3779b97f4a7c15u, static_cast<uint64_t>(epoch), shard_samples(epoch));
  return global(first + inner(k));
}

Order::Item Order::unsorted(int64_t epoch, int64_t step, int64_t i) const {
  const int64_t mine = shard_samples(epoch), wanted = step * o_.batch + i;
  return {of_shard(epoch, wanted % mine), wanted >= mine};
}

Order::Item Order::at(int64_t epoch, int64_t step, int64_t i) const {
  if (o_.bucket < 2 || step == steps_ - 1) return unsorted(epoch, step, i);
  const int64_t first = step / o_.bucket * o_.bucket, batches = std::min(o_.bucket, steps_ - 1 - first);
  Group& g = *group_;
  std::lock_guard lock(g.mutex);
  if (g.epoch != epoch || g.first != first) {
    g.indices.clear();
    for (int64_t s = first; s < first + batches; ++s)
      for (int64_t k = 0; k < o_.batch; ++k) g.indices.push_back(unsorted(epoch, s, k).index);
    std::ranges::stable_sort(g.indices, {},
                             [&](int64_t index) { return (*o_.sizes)[static_cast<size_t>(index)]; });
    g.epoch = epoch;
    g.first = first;
  }
  const Permutation turn(o_.seed ^ 0xbf58476d1ce4e5b9u,
                         static_cast<uint64_t>(epoch) * 1000003u + static_cast<uint64_t>(first), batches);
  return {g.indices[static_cast<size_t>(turn(step - first) * o_.batch + i)], false};
}

std::string Order::str() const {
  const int64_t slots = steps_ * o_.batch;
  std::string out =
      cat(o_.samples, " samples in ", o_.shards, o_.shards == 1 ? " shard" : " shards", " of ", smallest_);
  if (largest_ != smallest_) append(out, cat(" or ", largest_));
  append(out, cat(": ", steps_, " steps of ", o_.batch));
  int64_t repeated = std::max<int64_t>(0, slots * o_.shards - o_.samples),
          dropped = std::max<int64_t>(0, o_.samples - slots * o_.shards);
  if (o_.last == LastBatch::partial)  // the smaller shards, when their last step would be empty
    repeated = smallest_ == (steps_ - 1) * o_.batch ? largest_ * o_.shards - o_.samples : 0;
  append(out, cat(", ", repeated, " repeated, ", dropped, " dropped"));
  return out;
}

}  // namespace pelton::data
