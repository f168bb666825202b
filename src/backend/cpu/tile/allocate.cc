// SPDX-License-Identifier: Apache-2.0
// The loop nest of a program, its results, and places for its registers in tile memory.
#include <algorithm>

#include "backend/cpu/support.h"
#include "backend/cpu/tile/compiler.h"

namespace pelton::backend::cpu {

void TileCompiler::add_sink(size_t output) {
  const ir::ValueId v = r_.outputs[output];
  Sink s;
  s.reg = place(v).kind == Place::source ? use(v) : result(v);
  s.dtype = instance_.outputs[output].dtype;
  const bool whole = place(v).kind != Place::source && whole_[v.index] >= 0;
  s.store = whole ? store_whole(s.dtype, target_.isa) : store_function(s.dtype, target_.isa);
  const Place::Kind kind = place(v).kind;
  s.row = kind == Place::row || kind == Place::squeezed;
  s.outer = strides_of(loops_, aligned(instance_.outputs[output].dims, kind == Place::squeezed),
                       instance_.outputs[output].layout);
  p_.sinks.push_back(std::move(s));
}

void TileCompiler::build_nest() {
  size_t split = loops_.size();
  if (p_.has_rows) {
    split = 0;
    while (split < loops_.size() &&
           std::find(analysis_.axes.begin(), analysis_.axes.end(),
                     static_cast<int64_t>(loops_[split].axis)) == analysis_.axes.end())
      ++split;
  }
  Dims sizes;
  for (const Loop& l : loops_) sizes.push_back(l.size);
  std::vector<std::vector<int64_t>*> all;
  for (Source& s : p_.sources) all.push_back(&s.outer);
  for (Sink& s : p_.sinks) all.push_back(&s.outer);
  auto cut = [&](size_t at) {
    p_.outer.assign(sizes.begin(), sizes.begin() + static_cast<int64_t>(at));
    p_.inner.assign(sizes.begin() + static_cast<int64_t>(at), sizes.end());
    auto move_tail = [&](std::vector<int64_t>& outer, std::vector<int64_t>& inner) {
      inner.assign(outer.begin() + static_cast<int64_t>(at), outer.end());
      outer.resize(at);
    };
    for (Source& s : p_.sources) move_tail(s.outer, s.inner);
    for (Sink& s : p_.sinks) move_tail(s.outer, s.inner);
  };
  if (!p_.has_rows) {
    collapse(sizes, all);
    // Short innermost runs are walked together as one gathered row.
    constexpr int64_t kShort = 192;
    split = sizes.size();
    int64_t run = 1;
    while (split > 0 && run < kShort) run *= sizes[--split];
    cut(split);
  } else {
    cut(split);
    collapse(p_.outer, all);
    std::vector<std::vector<int64_t>*> tails;
    for (Source& s : p_.sources) tails.push_back(&s.inner);
    for (Sink& s : p_.sinks) tails.push_back(&s.inner);
    collapse(p_.inner, tails);
  }
  p_.rows = element_count(p_.outer);
  p_.inner_count = element_count(p_.inner);
  for (Source& s : p_.sources) {
    s.one = std::all_of(s.inner.begin(), s.inner.end(), [](int64_t v) { return v == 0; });
    s.direct = is_direct(s.dtype) && (s.one || (s.inner.size() == 1 && s.inner[0] == 1));
  }
  for (Register& r : p_.registers)
    if (r.kind == Register::source) r.one = p_.sources[static_cast<size_t>(r.index)].one;
  if (p_.has_rows) return;
  // What is the same along the whole inner run is computed once a row.
  for (Instruction& i : p_.code) {
    i.one = true;
    for (int r : i.in)
      if (r >= 0) i.one &= p_.registers[static_cast<size_t>(r)].one;
    p_.registers[static_cast<size_t>(i.out)].one = i.one;
  }
}

// Buffers live from their first writer to their last reader. The register of a sink is the output itself if
// no later step reads a source (the plan may have put the output over an input).
void TileCompiler::assign_slots() {
  const auto n = p_.registers.size();
  std::vector<int> last(n, -1), first(n, -1);
  int last_source_read = -1;
  for (size_t k = 0; k < p_.code.size(); ++k) {
    const int at = static_cast<int>(k);
    for (int r : p_.code[k].in)
      if (r >= 0) {
        last[static_cast<size_t>(r)] = at;
        if (p_.registers[static_cast<size_t>(r)].kind == Register::source) last_source_read = at;
      }
    for (int r : {p_.code[k].out, p_.code[k].out2})
      if (r >= 0) first[static_cast<size_t>(r)] = at;
  }
  const int64_t bytes =
      p_.rows * p_.inner_count * static_cast<int64_t>(p_.sources.size() + p_.sinks.size()) * 4;
  p_.streams = bytes > target_.l2_bytes;
  std::vector<bool> outside(n, false);
  for (Sink& s : p_.sinks) {
    const auto r = static_cast<size_t>(s.reg);
    const Register& reg = p_.registers[r];
    last[r] = static_cast<int>(p_.code.size());
    s.direct = reg.kind == Register::buffer && !reg.one && !s.row && is_direct(s.dtype) && !outside[r] &&
               first[r] >= last_source_read && s.inner.size() <= 1 && (s.inner.empty() || s.inner[0] == 1);
    if (s.direct) outside[r] = true;
  }
  std::vector<int> free;
  for (size_t k = 0; k < p_.code.size(); ++k) {
    for (int r : {p_.code[k].out, p_.code[k].out2}) {
      if (r < 0) continue;
      Register& reg = p_.registers[static_cast<size_t>(r)];
      if (reg.one || outside[static_cast<size_t>(r)]) continue;
      if (free.empty()) free.push_back(p_.slots++);
      reg.slot = free.back();
      free.pop_back();
    }
    for (size_t r = 0; r < n; ++r)
      if (p_.registers[r].slot >= 0 &&
          (last[r] == static_cast<int>(k) || (last[r] < 0 && first[r] == static_cast<int>(k))))
        free.push_back(p_.registers[r].slot);
  }
  for (Source& s : p_.sources)
    if (!s.direct && !s.one) s.slot = p_.slots++;
}

// Everything fits half of L1, with the runs read from memory counted as well.
void TileCompiler::choose_tile() {
  int widest = 1;
  for (const Register& r : p_.registers) widest = std::max(widest, lane_bytes(r.lane));
  if (p_.has_rows) {
    p_.tile = std::max<int64_t>(1, p_.inner_count);
  } else {
    const int64_t runs = p_.slots + static_cast<int64_t>(p_.sources.size() + p_.sinks.size());
    int64_t tile = target_.l1_bytes / 2 / (runs * widest);
    tile = std::clamp<int64_t>(tile / 64 * 64, 256, 8192);
    // One pass that keeps nothing: a stream is best not interrupted.
    if (p_.slots == 0)
      tile = std::max(tile, std::min<int64_t>(p_.inner_count / 64 / 64 * 64, int64_t{64} << 10));
    if (p_.inner_count < 2 * tile) tile = std::max<int64_t>(1, std::min(p_.inner_count, 2 * tile));
    p_.tile = tile;
  }
  p_.slot_bytes = align64(p_.tile * widest);
}

void TileCompiler::choose_grain() {
  const int64_t tiles = p_.tiles();
  int64_t work = 0;
  for (const Instruction& i : p_.code) p_.passes += !i.one;
  for (const Instruction& i : p_.code) work += i.one ? 0 : (i.wide && i.wide->scalar ? 16 : 2);
  p_.grain = grain_for(p_.rows * tiles, p_.tile * std::max<int64_t>(1, work));
  if (p_.slots * p_.slot_bytes > 64 << 10) p_.grain = std::max(p_.grain, (p_.rows * tiles + 15) / 16);
  p_.chunks = (p_.rows * tiles + p_.grain - 1) / p_.grain;
  p_.choose_rows();
}

}  // namespace pelton::backend::cpu
