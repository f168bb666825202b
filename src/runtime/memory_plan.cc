// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_plan.h"

#include <algorithm>

namespace pelton::runtime {
namespace {

int64_t aligned(int64_t bytes, int64_t alignment = kArenaAlignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// The users of a block that no other user follows.
std::vector<int> last_users(const Block& block, const Order& order) {
  std::vector<int> last;
  auto add = [&](int step) {
    if (std::any_of(last.begin(), last.end(), [&](int l) { return l == step || order.before(step, l); }))
      return;
    std::erase_if(last, [&](int l) { return order.before(l, step); });
    last.push_back(step);
  };
  add(block.writer);
  for (int r : block.readers) add(r);
  return last;
}

}  // namespace

MemoryPlan plan_memory(const std::vector<Block>& blocks, const Order& order, const std::vector<Row>& rows,
                       int64_t alignment) {
  MemoryPlan plan;
  plan.offsets.assign(blocks.size(), 0);
  std::vector<std::vector<int>> last(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) last[i] = last_users(blocks[i], order);
  auto over_before = [&](size_t a, size_t b) {
    for (int user : last[a])
      if (!order.before(user, blocks[b].writer)) return false;
    return true;
  };

  // What is placed as one: a row, or a block alone.
  std::vector<Row> units = rows;
  std::vector<bool> in_row(blocks.size(), false);
  for (const Row& row : rows)
    for (size_t b : row.blocks) in_row[b] = true;
  for (size_t i = 0; i < blocks.size(); ++i)
    if (!in_row[i]) units.push_back({{i}, {0}});
  auto size = [&](const Row& u) {
    return u.offsets.back() + aligned(blocks[u.blocks.back()].bytes, alignment);
  };

  // Largest first, each into the lowest gap that fits: within a few percent of the peak on real networks.
  std::stable_sort(units.begin(), units.end(), [&](const Row& a, const Row& b) { return size(a) > size(b); });
  std::vector<size_t> placed;  // by offset
  // The lowest place from `at` on where block i meets none that is in use with it.
  auto lowest = [&](size_t i, int64_t at) {
    const int64_t need = aligned(blocks[i].bytes, alignment);
    for (size_t p : placed) {
      if (plan.offsets[p] + aligned(blocks[p].bytes, alignment) <= at) continue;
      if (plan.offsets[p] >= at + need) break;
      if (over_before(i, p) || over_before(p, i)) continue;
      at = plan.offsets[p] + aligned(blocks[p].bytes, alignment);
    }
    return at;
  };
  for (const Row& u : units) {
    int64_t at = 0;
    for (bool moved = size(u) > 0; moved;) {
      moved = false;
      for (size_t k = 0; k < u.blocks.size(); ++k) {
        if (blocks[u.blocks[k]].bytes == 0) continue;
        const int64_t found = lowest(u.blocks[k], at + u.offsets[k]) - u.offsets[k];
        moved |= found > at;
        at = found;
      }
      moved &= u.blocks.size() > 1;
    }
    for (size_t k = 0; k < u.blocks.size(); ++k) {
      const size_t i = u.blocks[k];
      plan.offsets[i] = at + u.offsets[k];
      const int64_t need = aligned(blocks[i].bytes, alignment);
      plan.bytes = std::max(plan.bytes, plan.offsets[i] + need);
      if (need == 0) continue;
      auto place = std::upper_bound(placed.begin(), placed.end(), plan.offsets[i],
                                    [&](int64_t offset, size_t p) { return offset < plan.offsets[p]; });
      placed.insert(place, i);
    }
  }
  return plan;
}

int64_t peak_bytes(const std::vector<Block>& blocks, const Order& order) {
  std::vector<int64_t> change(static_cast<size_t>(order.size()) + 1, 0);
  for (const Block& b : blocks) {
    int end = b.writer;
    for (int r : b.readers) end = std::max(end, r);
    change[static_cast<size_t>(b.writer)] += aligned(b.bytes);
    change[static_cast<size_t>(end) + 1] -= aligned(b.bytes);
  }
  int64_t now = 0, peak = 0;
  for (int64_t c : change) peak = std::max(peak, now += c);
  return peak;
}

}  // namespace pelton::runtime
