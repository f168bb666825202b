// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "data/order.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::data;

namespace {

// Every (shard, step, item) of an epoch.
std::map<int64_t, int> counts(OrderOptions o, int64_t epoch, int64_t* padding = nullptr) {
  std::map<int64_t, int> seen;
  for (o.shard = 0; o.shard < o.shards; ++o.shard) {
    Order order(o);
    for (int64_t s = 0; s < order.steps(); ++s)
      for (int64_t i = 0; i < order.count(epoch, s); ++i) {
        const Order::Item item = order.at(epoch, s, i);
        if (padding) *padding += item.padding;
        if (!item.padding) ++seen[item.index];
      }
  }
  return seen;
}

}  // namespace

TEST_CASE("a permutation takes every place once, and another seed or stream gives another one") {
  for (int64_t n : {1, 2, 3, 7, 64, 1000}) {
    std::vector<int64_t> p, q, r;
    for (int64_t i = 0; i < n; ++i) {
      p.push_back(Permutation(1, 0, n)(i));
      q.push_back(Permutation(2, 0, n)(i));
      r.push_back(Permutation(1, 1, n)(i));
    }
    if (n == 1000) CHECK((p != q && p != r));
    std::ranges::sort(p);
    std::vector<int64_t> all(static_cast<size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    CHECK(p == all);
  }
}

TEST_CASE("shuffled neighbours are as far apart as chance makes them") {
  const Permutation p(5, 0, 10000);
  double sum = 0;
  for (int64_t i = 0; i + 1 < 10000; ++i) sum += static_cast<double>(std::abs(p(i + 1) - p(i)));
  CHECK(sum / 9999 == doctest::Approx(10000.0 / 3).epsilon(0.03));  // mean distance of two uniform numbers
}

TEST_CASE("shards are disjoint and complete with equal steps, under every policy") {
  for (bool shuffle : {false, true})
    for (bool stick : {false, true})
      for (int64_t n : {10, 17, 64})
        for (int64_t shards : {1, 3, 4})
          for (int64_t batch : {1, 4, 5})
            for (int64_t epoch : {0, 1, 2}) {
              OrderOptions o{n, batch, shards, 0, 9, shuffle, LastBatch::partial, stick};
              CAPTURE(n);
              CAPTURE(shards);
              CAPTURE(batch);
              CAPTURE(epoch);
              auto seen = counts(o, epoch);
              CHECK(static_cast<int64_t>(seen.size()) == n);
              CHECK(std::ranges::all_of(seen, [](auto& s) { return s.second == 1; }));
              o.last = LastBatch::fill;
              int64_t padding = 0;
              seen = counts(o, epoch, &padding);
              CHECK(static_cast<int64_t>(seen.size()) == n);
              CHECK(padding == Order(o).steps() * batch * shards - n);
              if (n / shards >= batch) {
                o.last = LastBatch::drop;
                seen = counts(o, epoch);
                CHECK(static_cast<int64_t>(seen.size()) == Order(o).steps() * batch * shards);
                CHECK(std::ranges::all_of(seen, [](auto& s) { return s.second == 1; }));
              }
            }
}

TEST_CASE("no batch is ever empty") {
  // 9 samples in 2 shards of 4 and 5: with batches of 4 the smaller shard would have nothing in step 1.
  for (int64_t shard : {0, 1})
    for (int64_t epoch : {0, 1}) {
      Order order({9, 4, 2, shard, 0, false, LastBatch::partial, false});
      CHECK(order.steps() == 2);
      CHECK(order.count(epoch, 1) == 1);
    }
  Order order({9, 4, 2, 0, 0, false, LastBatch::partial, false});
  CHECK(order.str() == "9 samples in 2 shards of 4 or 5: 2 steps of 4, 1 repeated, 0 dropped");
  CHECK(order.at(0, 1, 0).padding);
  CHECK(!order.at(1, 1, 0).padding);
}

TEST_CASE("sticky shards read the same samples in every epoch, in another order") {
  OrderOptions o{100, 10, 4, 2, 3, true, LastBatch::partial, true};
  Order order(o);
  auto epoch = [&](int64_t e) {
    std::vector<int64_t> all;
    for (int64_t s = 0; s < order.steps(); ++s)
      for (int64_t i = 0; i < order.count(e, s); ++i) all.push_back(order.at(e, s, i).index);
    return all;
  };
  std::vector<int64_t> a = epoch(0), b = epoch(1);
  CHECK(a != b);
  std::ranges::sort(a);
  std::ranges::sort(b);
  CHECK(a == b);
}

TEST_CASE("a shuffle window keeps neighbours near, takes every place once and moves from epoch to epoch") {
  OrderOptions o;
  o.samples = 1003;
  o.batch = 17;
  o.seed = 4;
  o.shuffle = true;
  o.window = 50;
  const Order order(o);
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> seen;
    for (int64_t step = 0; step < order.steps(); ++step)
      for (int64_t i = 0; i < order.count(epoch, step); ++i) seen.push_back(order.at(epoch, step, i).index);
    // Nearly all samples come within a window's width of the one before.
    int64_t near = 0, sorted = 0;
    for (size_t i = 1; i < seen.size(); ++i) {
      near += std::abs(seen[i] - seen[i - 1]) < 50;
      sorted += seen[i] == seen[i - 1] + 1;
    }
    CHECK(near > 950);
    CHECK(sorted < 100);
    epochs.push_back(seen);
    std::ranges::sort(seen);
    for (int64_t i = 0; i < 1003; ++i) CHECK(seen[static_cast<size_t>(i)] == i);
  }
  CHECK(epochs[0] != epochs[1]);
  o.stick = true;
  test::expect_error(ErrorCode::usage, {"shuffle_window"}, [&] { Order{o}; });
}

TEST_CASE("orders that cannot be are refused") {
  using test::expect_error;
  expect_error(ErrorCode::usage, {"no samples"}, [] { Order(OrderOptions{}); });
  expect_error(ErrorCode::usage, {"shard 2 of 2"}, [] {
    Order({10, 1, 2, 2, 0, false, LastBatch::partial, false});
  });
  expect_error(ErrorCode::usage, {"3 samples cannot feed 4 shards"}, [] {
    Order({3, 1, 4, 0, 0, false, LastBatch::partial, false});
  });
  expect_error(ErrorCode::usage, {"no whole batch of 8"}, [] {
    Order({10, 8, 2, 0, 0, false, LastBatch::drop, false});
  });
}
