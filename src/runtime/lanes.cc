// SPDX-License-Identifier: Apache-2.0
#include "runtime/lanes.h"

#include <algorithm>
#include <map>

#include "ir/op.h"
#include "runtime/region.h"

namespace pelton::runtime {
namespace {

using namespace ir;

constexpr uint32_t kMostSteps = 4096;  // of a part that is looked at: the relation takes its square in bits
constexpr int kMostLanes = 4;
// Rough figures of a large GPU; only orders of magnitude count.
constexpr double kStepNs = 3000, kBytesPerNs = 2500, kFlopsPerNs = 100e3;
constexpr double kForkNs = 3000;  // a fork and its join
// A step of more than this leaves others no room.
constexpr double kFullBytes = 16e6, kFullFlops = 2e9;

// One bit a step of a part.
class Bits {
 public:
  explicit Bits(uint32_t count) : words_((count + 63) / 64, 0) {}
  void set(uint32_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  bool get(uint32_t i) const { return words_[i / 64] >> (i % 64) & 1; }
  void join(const Bits& o) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= o.words_[i];
  }

 private:
  std::vector<uint64_t> words_;
};

double flops_of(const Graph& g, NodeId id, const SymbolValues& symbols) {
  const ir::Node& n = g[id];
  if (!n.op->flops) return 0;
  auto dims = [&](const std::vector<ValueId>& values) {
    std::vector<Dims> out;
    for (ValueId v : values) out.push_back(v ? eval(g.type(v).shape, symbols) : Dims{});
    return out;
  };
  return n.op->flops(g, n, dims(n.inputs), dims(n.outputs));
}

class Part {
 public:
  Part(Program& p, const Region& region, const SymbolValues& symbols, uint32_t first, uint32_t last)
      : p_(p), region_(region), first_(first), count_(last - first), before_(count_, Bits(count_)) {
    needs_.resize(count_);
    lane_.assign(count_, 0);
    for (uint32_t i = 0; i < count_; ++i) {
      find_needs(i);
      for (uint32_t n : needs_[i]) {
        before_[i].join(before_[n]);
        before_[i].set(n);
      }
      double bytes = 0;
      each_ref(i, [&](const Ref& r, bool) { bytes += static_cast<double>(r.bytes); });
      const double flops = flops_of(region.graph(), step(i).node, symbols);
      ns_.push_back(kStepNs + bytes / kBytesPerNs + flops / kFlopsPerNs);
      full_.push_back(bytes > kFullBytes || flops > kFullFlops);
    }
  }

  void run(double least_ns, bool writes_state) {
    if (writes_state && std::find(full_.begin(), full_.end(), true) != full_.end()) return;
    find_chains();
    std::vector<size_t> by_length;
    for (size_t c = 0; c < chains_.size(); ++c) by_length.push_back(c);
    std::stable_sort(by_length.begin(), by_length.end(),
                     [&](size_t a, size_t b) { return length_[a] > length_[b]; });
    // The longest stays on the first lane.
    for (size_t i = 1; i < by_length.size(); ++i) {
      const std::vector<uint32_t>& chain = chains_[by_length[i]];
      if (gain(chain) < std::max(1.0, least_ns)) continue;
      if (const int lane = free_lane(chain))
        for (uint32_t s : chain) lane_[s] = lane;
    }
    for (uint32_t i = 0; i < count_; ++i) {
      step(i).lane = lane_[i];
      for (uint32_t n : needs_[i])
        if (lane_[n] != lane_[i]) step(i).waits.push_back(static_cast<int>(first_ + n));
    }
  }

 private:
  Step& step(uint32_t i) { return p_.steps[first_ + i]; }

  template <class F>
  void each_ref(uint32_t i, F&& f) {
    const Step& s = step(i);
    for (uint32_t r = s.first_in; r < s.first_in + s.in_count; ++r) f(p_.refs[r], false);
    for (uint32_t r = s.first_out; r < s.first_out + s.out_count; ++r) f(p_.refs[r], true);
  }

  // What a step reads has been written, and what it writes over has been read. Tokens are values too.
  void find_needs(uint32_t i) {
    std::vector<uint32_t>& needs = needs_[i];
    auto need = [&](uint32_t n) {
      if (n != i && std::find(needs.begin(), needs.end(), n) == needs.end()) needs.push_back(n);
    };
    each_ref(i, [&](const Ref& r, bool written) {
      if (!r.value) return;
      const auto key = r.place == Place::slot ? std::pair(true, r.index)
                                              : std::pair(false, region_.value(r.value).root.index);
      Users& u = users_[key];
      if (u.writer >= 0) need(static_cast<uint32_t>(u.writer));
      if (!written) {
        u.readers.push_back(i);
        return;
      }
      for (uint32_t reader : u.readers) need(reader);
      u.writer = static_cast<int>(i);
      u.readers.clear();
    });
  }

  // Splits the part into chains: each step goes on with the chain of the longest way to it that nobody else
  // has gone on with.
  void find_chains() {
    std::vector<double> way(count_, 0);
    std::vector<int> chain_of(count_, -1);
    for (uint32_t i = 0; i < count_; ++i) {
      int best = -1;
      for (uint32_t n : needs_[i]) {
        way[i] = std::max(way[i], way[n]);
        const auto c = static_cast<size_t>(chain_of[n]);
        if (chains_[c].back() == n && (best < 0 || way[n] > way[static_cast<size_t>(best)]))
          best = static_cast<int>(n);
      }
      way[i] += ns_[i];
      if (best < 0) {
        chain_of[i] = static_cast<int>(chains_.size());
        chains_.emplace_back();
        length_.push_back(0);
      } else {
        chain_of[i] = chain_of[static_cast<size_t>(best)];
      }
      const auto c = static_cast<size_t>(chain_of[i]);
      chains_[c].push_back(i);
      length_[c] += ns_[i];
    }
  }

  // Time that a chain takes beside steps that neither need it nor are needed by it.
  double gain(const std::vector<uint32_t>& chain) const {
    double own = 0, others = 0;
    for (uint32_t s : chain) own += full_[s] ? 0 : ns_[s];
    for (uint32_t i = 0; i < count_; ++i) {
      if (full_[i] || lane_[i] != 0 || std::find(chain.begin(), chain.end(), i) != chain.end()) continue;
      if (!before_[chain.front()].get(i) && !before_[i].get(chain.back())) others += ns_[i];
    }
    return std::min(own, others) - kForkNs;
  }

  // A lane beside the first whose chains are all before or behind this one; 0: none.
  int free_lane(const std::vector<uint32_t>& chain) const {
    for (int lane = 1; lane < kMostLanes; ++lane) {
      bool free = true;
      for (uint32_t i = 0; i < count_ && free; ++i)
        free = lane_[i] != lane || before_[chain.front()].get(i) || before_[i].get(chain.back());
      if (free) return lane;
    }
    return 0;
  }

  struct Users {
    int writer = -1;
    std::vector<uint32_t> readers;
  };
  Program& p_;
  const Region& region_;
  const uint32_t first_, count_;
  std::vector<Bits> before_;                  // by step: those that it needs, directly or not
  std::vector<std::vector<uint32_t>> needs_;  // by step: those that it needs directly
  std::vector<double> ns_;
  std::vector<bool> full_;
  std::vector<int> lane_;
  std::vector<std::vector<uint32_t>> chains_;
  std::vector<double> length_;
  std::map<std::pair<bool, uint32_t>, Users> users_;
};

}  // namespace

void assign_lanes(Program& p, const Region& region, const SymbolValues& symbols, int64_t least_ns,
                  bool writes_state) {
  const auto count = static_cast<uint32_t>(p.steps.size());
  Order order;
  std::vector<int> last;  // by lane: its last step
  for (uint32_t first = 0; first < count;) {
    auto recorded = [&](uint32_t s) { return p.steps[s].on_device && p.steps[s].capturable; };
    uint32_t end = first + 1;
    while (recorded(first) && end < count && recorded(end)) ++end;
    if (least_ns >= 0 && end - first > 2 && end - first <= kMostSteps)
      Part(p, region, symbols, first, end).run(static_cast<double>(least_ns), writes_state);
    // A part begins when all before it is done.
    std::vector<int> all_before;
    for (int s : last)
      if (s >= 0) all_before.push_back(s);
    std::vector<bool> entered;
    for (uint32_t s = first; s < end; ++s) {
      const Step& step = p.steps[s];
      const auto lane = static_cast<size_t>(step.lane);
      if (last.size() <= lane) last.resize(lane + 1, -1);
      if (entered.size() <= lane) entered.resize(lane + 1, false);
      std::vector<int> waits = step.waits;
      if (!entered[lane]) waits.insert(waits.end(), all_before.begin(), all_before.end());
      entered[lane] = true;
      last[lane] = order.add(step.lane, waits);
    }
    first = end;
  }
  p.order = std::move(order);
}

}  // namespace pelton::runtime
