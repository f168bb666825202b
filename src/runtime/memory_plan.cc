// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace pelton::runtime {
namespace {

int64_t aligned(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
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

MemoryPlan plan_memory(const std::vector<Block>& blocks, const Order& order) {
  MemoryPlan plan;
  plan.offsets.assign(blocks.size(), 0);
  std::vector<std::vector<int>> last(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) last[i] = last_users(blocks[i], order);
  auto over_before = [&](size_t a, size_t b) {
    for (int user : last[a])
      if (!order.before(user, blocks[b].writer)) return false;
    return true;
  };

  // Largest first, each into the lowest gap that fits: within a few percent of the peak on real networks.
  std::vector<size_t> sorted(blocks.size());
  std::iota(sorted.begin(), sorted.end(), size_t{0});
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  std::vector<size_t> placed;  // by offset
  for (size_t i : sorted) {
    int64_t need = aligned(blocks[i].bytes), at = 0;
    if (need > 0) {
      for (size_t p : placed) {
        if (plan.offsets[p] + aligned(blocks[p].bytes) <= at) continue;
        if (plan.offsets[p] >= at + need) break;
        if (over_before(i, p) || over_before(p, i)) continue;
        at = plan.offsets[p] + aligned(blocks[p].bytes);
      }
      auto place = std::upper_bound(placed.begin(), placed.end(), at,
                                    [&](int64_t offset, size_t p) { return offset < plan.offsets[p]; });
      placed.insert(place, i);
    }
    plan.offsets[i] = at;
    plan.bytes = std::max(plan.bytes, at + need);
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
