// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_plan.h"

#include <doctest/doctest.h>

#include "base/philox.h"

using namespace pelton;
using namespace pelton::runtime;

namespace {

bool overlap(const MemoryPlan& plan, const std::vector<Block>& blocks, size_t a, size_t b) {
  return blocks[a].bytes && blocks[b].bytes && plan.offsets[a] < plan.offsets[b] + blocks[b].bytes &&
         plan.offsets[b] < plan.offsets[a] + blocks[a].bytes;
}

bool over(const Block& a, const Block& b, const Order& order) {
  if (!order.before(a.writer, b.writer)) return false;
  for (int r : a.readers)
    if (!order.before(r, b.writer)) return false;
  return true;
}

void check_sound(const std::vector<Block>& blocks, const Order& order, const std::vector<Row>& rows = {}) {
  MemoryPlan plan = plan_memory(blocks, order, rows);
  for (const Row& row : rows)
    for (size_t k = 0; k < row.blocks.size(); ++k)
      CHECK(plan.offsets[row.blocks[k]] == plan.offsets[row.blocks[0]] + row.offsets[k]);
  for (size_t a = 0; a < blocks.size(); ++a) {
    CHECK(plan.offsets[a] % kArenaAlignment == 0);
    CHECK(plan.offsets[a] + blocks[a].bytes <= plan.bytes);
    for (size_t b = a + 1; b < blocks.size(); ++b)
      if (overlap(plan, blocks, a, b)) {
        CAPTURE(a);
        CAPTURE(b);
        CHECK((over(blocks[a], blocks[b], order) || over(blocks[b], blocks[a], order)));
      }
  }
}

}  // namespace

TEST_CASE("order: steps of a lane follow each other, lanes meet only at waits") {
  Order order;
  int a0 = order.add(0), b0 = order.add(1), a1 = order.add(0);
  int wait[] = {a0};
  int b1 = order.add(1, wait), b2 = order.add(1);
  int both[] = {a1, b1};
  int c = order.add(2, both);
  CHECK(order.before(a0, a1));
  CHECK(!order.before(a0, b0));
  CHECK(!order.before(b0, a1));
  CHECK(order.before(a0, b1));
  CHECK(order.before(a0, b2));  // through b1
  CHECK(!order.before(a1, b2));
  CHECK(order.before(b0, c));
  CHECK(order.before(a1, c));
  CHECK(!order.before(b2, c));
  CHECK(!order.before(c, c));
}

TEST_CASE("memory: a chain takes two blocks, parallel lanes keep theirs apart") {
  std::vector<Block> chain;
  for (int i = 0; i < 9; ++i) chain.push_back({1000, i, {i + 1}});
  CHECK(plan_memory(chain, Order::list(10)).bytes == 2 * 1024);
  CHECK(peak_bytes(chain, Order::list(10)) == 2 * 1024);

  Order order;
  for (int i = 0; i < 4; ++i) order.add(i % 2);
  // Steps 0 and 2 are lane 0, 1 and 3 lane 1: nothing of one lane is over before the other's starts.
  std::vector<Block> lanes = {{64, 0, {}}, {64, 1, {}}, {64, 2, {}}, {64, 3, {}}};
  CHECK(plan_memory(lanes, order).bytes == 2 * 64);
  CHECK(plan_memory(lanes, Order::list(4)).bytes == 64);
  CHECK(plan_memory(lanes, order, {}, 256).bytes == 2 * 256);
  check_sound(lanes, order);
}

TEST_CASE("memory: random schedules over lanes are planned soundly") {
  RandomStream random{7};
  uint64_t draw = 0;
  auto below = [&](uint32_t n) { return static_cast<int>(random.bits(draw++) % n); };
  for (int round = 0; round < 200; ++round) {
    Order order;
    int steps = 2 + below(40), lanes = 1 + below(4);
    for (int s = 0; s < steps; ++s) {
      std::vector<int> waits;
      if (s)
        for (int i = below(3); i > 0; --i) waits.push_back(below(static_cast<uint32_t>(s)));
      order.add(below(static_cast<uint32_t>(lanes)), waits);
    }
    std::vector<Block> blocks;
    for (int s = 0; s < steps; ++s) {
      Block b{below(5000), s, {}};
      for (int r = s + 1; r < steps; ++r)
        if (order.before(s, r) && below(4) == 0) b.readers.push_back(r);
      blocks.push_back(b);
    }
    check_sound(blocks, order);
  }
}

TEST_CASE("memory: rows lie one behind the other, and what is not there yet leaves its room to others") {
  // Gradients 1, 3, 5 are read at the end; what is kept for the backward pass (0, 2, 4) goes one by one.
  std::vector<Block> blocks = {{1024, 0, {5}}, {512, 5, {9}},  {1024, 1, {6}},
                               {512, 6, {9}},  {1024, 2, {7}}, {500, 7, {9}}};
  const Row row = {{1, 3, 5}, {0, 512, 1024}};
  check_sound(blocks, Order::list(10), {row});
  CHECK(plan_memory(blocks, Order::list(10), {row}).bytes <= 3 * 1024 + 512);
  RandomStream draw{3, 0, 0};
  uint64_t at = 0;
  for (int round = 0; round < 40; ++round) {
    std::vector<Block> all;
    std::vector<Row> rows(2);
    int64_t offsets[2] = {0, 0};
    for (size_t i = 0; i < 24; ++i) {
      const int writer = static_cast<int>(draw.uniform(at++) * 18);
      const auto bytes = static_cast<int64_t>(draw.uniform(at++) * 900);
      all.push_back(
          {bytes, writer, {writer + 1, static_cast<int>(writer + draw.uniform(at++) * (19 - writer))}});
      const auto which = static_cast<size_t>(draw.uniform(at++) * 4);
      if (which > 1) continue;
      rows[which].blocks.push_back(i);
      rows[which].offsets.push_back(offsets[which]);
      offsets[which] += (bytes + 255) / 256 * 256;
    }
    std::erase_if(rows, [](const Row& r) { return r.blocks.empty(); });
    check_sound(all, Order::list(20), rows);
  }
}
