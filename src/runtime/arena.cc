// SPDX-License-Identifier: Apache-2.0
#include "runtime/arena.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "ir/custom.h"
#include "ir/segments.h"
#include "runtime/memory_plan.h"
#include "runtime/region.h"
#include "runtime/state_layout.h"

namespace pelton::runtime {
namespace {

using namespace ir;

class Planner {
 public:
  Planner(Program& program, const Region& region) : p_(program), region_(region) {}

  void run() {
    for (size_t s = 0; s < p_.steps.size(); ++s) {
      const Step& step = p_.steps[s];
      for (uint32_t i = 0; i < step.out_count; ++i)
        if (const Ref& r = p_.refs[step.first_out + i]; r.place == Place::arena) writer_[root(r)] = s;
      each_input(step, [&](Ref& r) {
        std::vector<int>& readers = readers_[root(r)];
        readers.push_back(static_cast<int>(s));
        // What enters a stretch run in slices is read by every slice.
        if (p_.slices.holds(s) && !p_.slices.holds(writer_.at(root(r))))
          readers.push_back(static_cast<int>(p_.slices.last) - 1);
      });
    }
    find_rows();
    scratch_.assign(p_.steps.size(), SIZE_MAX);
    for (size_t s = 0; s < p_.steps.size(); ++s) add_step(static_cast<int>(s));

    MemoryPlan plan =
        plan_memory(blocks_, p_.order, rows(), region_.device() ? kDeviceAlignment : kArenaAlignment);
    p_.arena_bytes = plan.bytes;
    p_.peak_bytes = peak_bytes(blocks_, p_.order);
    for (Ref& r : p_.refs)
      if (r.place == Place::arena) r.offset = plan.offsets[block_of_.at(root(r))];
    for (size_t s = 0; s < p_.steps.size(); ++s)
      if (scratch_[s] != SIZE_MAX) p_.steps[s].scratch_offset = plan.offsets[scratch_[s]];
    for (size_t b = 0; b < blocks_.size(); ++b) {
      int last = blocks_[b].writer;
      for (int r : blocks_[b].readers) last = std::max(last, r);
      if (blocks_[b].bytes > 0)
        p_.freed.push_back({static_cast<uint32_t>(last), plan.offsets[b], blocks_[b].bytes});
    }
    std::stable_sort(p_.freed.begin(), p_.freed.end(),
                     [](const auto& a, const auto& b) { return a.step < b.step; });
  }

 private:
  uint32_t root(const Ref& r) const { return region_.value(r.value).root.index; }

  // What a node of segments that writes state reads in each of them, as the gradients, is a flat buffer.
  void find_rows() {
    const Graph& g = region_.graph();
    for (const Step& step : p_.steps) {
      bool writes = false;
      for (uint32_t i = 0; i < step.out_count; ++i)
        writes |= p_.refs[step.first_out + i].place == Place::slot;
      if (!writes) continue;
      const ir::Node& n = g[step.node];
      const std::vector<Segment> segments = segments_of(n);
      if (segments.empty()) continue;
      const Graph& body = n.get_graph("body");
      std::map<ValueId, uint32_t> place;  // among the inputs
      for (uint32_t i = 0; i < body.inputs.size(); ++i) place[body.inputs[i]] = i;
      for (size_t k = 0; k < segments[0].operands.size(); ++k) {
        std::vector<uint32_t> row;
        for (const Segment& s : segments) {
          const Ref& r = p_.refs[step.first_in + place.at(s.operands[k])];
          const bool own = r.place == Place::arena && r.bytes > 0 && s.is_full(body.type(s.operands[k])) &&
                           !p_.slices.holds(writer_.at(root(r)));
          if (own && in_row_.insert(root(r)).second) row.push_back(root(r));
        }
        if (row.size() > 1) rows_.push_back(std::move(row));
      }
    }
  }

  std::vector<Row> rows() const {
    std::vector<Row> out;
    for (const std::vector<uint32_t>& row : rows_) {
      out.emplace_back();
      int64_t at = 0;
      for (uint32_t value : row) {
        const size_t block = block_of_.at(value);
        out.back().blocks.push_back(block);
        out.back().offsets.push_back(at);
        at += (blocks_[block].bytes + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
      }
    }
    return out;
  }

  template <class F>
  void each_input(const Step& step, F&& f) {
    for (uint32_t i = 0; i < step.in_count; ++i)
      if (Ref& r = p_.refs[step.first_in + i]; r.place == Place::arena) f(r);
  }

  void add_step(int s) {
    const Step& step = p_.steps[static_cast<size_t>(s)];
    if (step.scratch_bytes > 0) {
      scratch_[static_cast<size_t>(s)] = blocks_.size();
      blocks_.push_back({step.scratch_bytes, s, {}});
    }
    for (uint32_t i = 0; i < step.out_count; ++i) {
      const Ref& out = p_.refs[step.first_out + i];
      if (out.place != Place::arena) continue;
      const std::vector<int>& later = readers_[root(out)];
      if (size_t block = taken_over(s, out); block != SIZE_MAX) {
        block_of_[root(out)] = block;
        blocks_[block].readers.insert(blocks_[block].readers.end(), later.begin(), later.end());
      } else {
        block_of_[root(out)] = blocks_.size();
        // What leaves a stretch run in slices is written by every slice.
        blocks_.push_back({out.bytes, out.slice_bytes > 0 ? static_cast<int>(p_.slices.first) : s, later});
      }
    }
  }

  // The block of an input that ends at this step and that `out` fits exactly; SIZE_MAX: none.
  size_t taken_over(int s, const Ref& out) {
    const Step& step = p_.steps[static_cast<size_t>(s)];
    const Graph& g = region_.graph();
    if (!step.kernel || !in_place(g[step.node]) || step.out_count != 1 || in_row_.count(root(out)))
      return SIZE_MAX;
    const Type& type = g.type(out.value);
    size_t found = SIZE_MAX;
    each_input(step, [&](const Ref& in) {
      const Type& from = g.type(in.value);
      if (found != SIZE_MAX || !in_place(g[step.node], in.value) || in.dims != out.dims ||
          in.bytes != out.bytes || from.dtype != type.dtype || from.layout != type.layout)
        return;
      const std::vector<int>& readers = readers_[root(in)];
      // Read by this step once, since an element-wise kernel may read one operand after writing over another.
      if (std::count(readers.begin(), readers.end(), s) != 1) return;
      for (int r : readers)
        if (r != s && !p_.order.before(r, s)) return;
      found = block_of_.at(root(in));
    });
    return found;
  }

  Program& p_;
  const Region& region_;
  std::vector<Block> blocks_;
  std::vector<size_t> scratch_;                             // by step: its block
  std::unordered_map<uint32_t, std::vector<int>> readers_;  // by root
  std::unordered_map<uint32_t, size_t> writer_;             // by root: the step
  std::unordered_map<uint32_t, size_t> block_of_;           // by root
  std::vector<std::vector<uint32_t>> rows_;                 // of roots
  std::set<uint32_t> in_row_;                               // roots
};

}  // namespace

void plan_arena(Program& program, const Region& region) {
  Planner(program, region).run();
}

}  // namespace pelton::runtime
