// SPDX-License-Identifier: Apache-2.0
// Running a tile program.
#include <algorithm>
#include <cstring>

#include "backend/cpu/support.h"
#include "backend/cpu/tile/program.h"

namespace pelton::backend::cpu {
namespace {

constexpr int64_t kStackBytes = 64 << 10;
constexpr size_t kMaxOperands = 64, kMaxLoops = 16;

// Copies or converts elements [begin, begin + count) of the inner run, which `inner` and `strides` describe,
// to lanes, one contiguous piece at a time.
template <class F>
void walk(const Dims& inner, const std::vector<int64_t>& strides, int64_t begin, int64_t count, F piece) {
  if (count <= 0) return;
  if (inner.empty()) return piece(int64_t{0}, int64_t{0}, int64_t{0}, count);
  const size_t last = inner.size() - 1;
  int64_t index[kMaxLoops];
  int64_t rest = begin, at = 0;
  for (size_t d = inner.size(); d-- > 0;) {
    index[d] = rest % inner[d];
    rest /= inner[d];
    at += index[d] * strides[d];
  }
  for (int64_t done = 0; done < count;) {
    const int64_t n = std::min(count - done, inner[last] - index[last]);
    piece(at, strides[last], done, n);
    done += n;
    // To the start of the next innermost run.
    at -= index[last] * strides[last];
    index[last] = 0;
    for (size_t d = last; d-- > 0;) {
      at += strides[d];
      if (++index[d] < inner[d]) break;
      at -= index[d] * strides[d];
      index[d] = 0;
    }
  }
}

class Runner {
 public:
  Runner(const Program& p, const RunArgs& args, std::byte* tiles) : p_(p), args_(args), tiles_(tiles) {
    for (size_t r = 0; r < p.registers.size(); ++r) {
      const Register& reg = p.registers[r];
      address_[r] =
          reg.slot >= 0 ? tiles + reg.slot * p.slot_bytes : reinterpret_cast<std::byte*>(&single_[r]);
      if (reg.kind == Register::constant) set_constant(reg, &single_[r]);
    }
  }

  // Tiles [begin, end) counted row by row.
  void run(int64_t begin, int64_t end) {
    const int64_t tiles = p_.tiles();
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t row = unit / tiles, start = unit % tiles * p_.tile;
      const bool new_row = unit == begin || start == 0;
      if (new_row) seek(row);
      // Along a row the hardware follows by itself.
      next_ = p_.streams && p_.has_rows && unit + 1 < end;
      run_tile(start, std::min(p_.tile, p_.inner_count - start), new_row);
    }
  }

 private:
  // Offsets, in elements, of the row in every operand.
  void seek(int64_t row) {
    std::fill(source_at_, source_at_ + p_.sources.size(), 0);
    std::fill(sink_at_, sink_at_ + p_.sinks.size(), 0);
    for (size_t d = p_.outer.size(); d-- > 0;) {
      const int64_t i = row % p_.outer[d];
      row /= p_.outer[d];
      if (i == 0) continue;
      for (size_t s = 0; s < p_.sources.size(); ++s) source_at_[s] += i * p_.sources[s].outer[d];
      for (size_t s = 0; s < p_.sinks.size(); ++s) sink_at_[s] += i * p_.sinks[s].outer[d];
    }
  }
  void run_tile(int64_t start, int64_t n, bool new_row) {
    for (size_t r = 0; r < p_.registers.size(); ++r)
      if (p_.registers[r].kind == Register::source) bind_source(r, start, n, new_row);
    for (const Sink& s : p_.sinks)
      if (s.direct) address_[static_cast<size_t>(s.reg)] = sink_base(s) + start * (bits(s.dtype) / 8);
    int64_t at = 0;
    for (const Instruction& i : p_.code) {
      if (next_ && !i.one) fetch_ahead(at++);
      if (i.one && !new_row) continue;
      Step step;
      for (int k = 0; k < 5; ++k)
        if (const int r = i.in[k]; r >= 0) {
          step.in[k] = address_[static_cast<size_t>(r)];
          step.one[k] = p_.registers[static_cast<size_t>(r)].one;
        }
      step.out = address_[static_cast<size_t>(i.out)];
      if (i.out2 >= 0) step.out2 = address_[static_cast<size_t>(i.out2)];
      step.imm[0] = i.imm[0];
      step.imm[1] = i.imm[1];
      step.wide = i.wide.get();
      i.f(step, i.one ? 1 : n);
    }
    for (const Sink& s : p_.sinks)
      if (!s.direct) store(s, start, n, new_row);
  }
  // While pass `at` over a row runs, its share of the next row comes closer: rows are too short for the
  // hardware to follow. An address behind the last row does no harm.
  void fetch_ahead(int64_t at) const {
    const auto fetch = [&](const void* base, int64_t row, const std::vector<int64_t>& outer, DType type,
                           bool to_write) {
      if (outer.empty() || outer.back() == 0) return;  // the same row again
      const int64_t width = bits(type) / 8, bytes = p_.inner_count * width;
      const auto* next = static_cast<const char*>(base) + (row + outer.back()) * width;
      const int64_t first = bytes * at / p_.passes / 64 * 64;
      const int64_t last = bytes * (at + 1) / p_.passes;
      if (to_write)
        for (int64_t b = first; b < last; b += 64) __builtin_prefetch(next + b, 1, 2);
      else
        for (int64_t b = first; b < last; b += 64) __builtin_prefetch(next + b, 0, 2);
    };
    for (size_t k = 0; k < p_.sources.size(); ++k)
      if (const Source& s = p_.sources[k]; s.direct && !s.one && s.input >= 0)
        fetch(args_.in[static_cast<size_t>(s.input)], source_at_[k], s.outer, s.dtype, false);
    for (size_t k = 0; k < p_.sinks.size(); ++k)
      if (const Sink& s = p_.sinks[k]; s.direct) fetch(args_.out[k], sink_at_[k], s.outer, s.dtype, true);
  }
  std::byte* sink_base(const Sink& s) const {
    const auto k = static_cast<size_t>(&s - p_.sinks.data());
    return static_cast<std::byte*>(args_.out[k]) + sink_at_[k] * (bits(s.dtype) / 8);
  }
  void bind_source(size_t r, int64_t start, int64_t n, bool new_row) {
    const auto k = static_cast<size_t>(p_.registers[r].index);
    const Source& s = p_.sources[k];
    const int64_t width = bits(s.dtype) / 8;
    const void* data = s.input >= 0 ? args_.in[static_cast<size_t>(s.input)] : s.constant.data();
    const std::byte* base = static_cast<const std::byte*>(data) + source_at_[k] * width;
    if (s.one) {
      address_[r] = reinterpret_cast<std::byte*>(&single_[r]);
      if (new_row) s.load(base, 1, &single_[r], 1);
    } else if (s.direct) {
      address_[r] = const_cast<std::byte*>(base) + start * width;
    } else {
      std::byte* to = tiles_ + s.slot * p_.slot_bytes;
      address_[r] = to;
      const int lane = lane_bytes(p_.registers[r].lane);
      walk(p_.inner, s.inner, start, n, [&](int64_t at, int64_t stride, int64_t done, int64_t count) {
        s.load(base + at * width, stride, to + done * lane, count);
      });
    }
  }
  void store(const Sink& s, int64_t start, int64_t n, bool new_row) {
    const Register& reg = p_.registers[static_cast<size_t>(s.reg)];
    const std::byte* from = address_[static_cast<size_t>(s.reg)];
    std::byte* base = sink_base(s);
    if (s.row) {
      if (new_row) s.store(from, base, 1, 1);
      return;
    }
    const int64_t width = bits(s.dtype) / 8, lane = lane_bytes(reg.lane);
    if (!reg.one) {
      walk(p_.inner, s.inner, start, n, [&](int64_t at, int64_t stride, int64_t done, int64_t count) {
        s.store(from + done * lane, base + at * width, stride, count);
      });
      return;
    }
    // One value for the whole run: stored once, then copied.
    walk(p_.inner, s.inner, start, n, [&](int64_t at, int64_t stride, int64_t, int64_t count) {
      std::byte* to = base + at * width;
      s.store(from, to, 1, 1);
      for (int64_t i = 1; i < count; ++i)
        std::memcpy(to + i * stride * width, to, static_cast<size_t>(width));
    });
  }

  const Program& p_;
  const RunArgs& args_;
  std::byte* tiles_;
  bool next_ = false;  // another row of a program with reductions follows
  std::byte* address_[kMaxRegisters];
  uint64_t single_[kMaxRegisters];
  int64_t source_at_[kMaxOperands], sink_at_[kMaxOperands];
};

}  // namespace

void set_constant(const Register& reg, void* to) {
  const auto f = static_cast<float>(reg.value);
  const auto i = static_cast<int64_t>(reg.value);
  const uint8_t b = reg.value != 0;
  switch (reg.lane) {
    case Lane::f32:
      std::memcpy(to, &f, 4);
      return;
    case Lane::f64:
      std::memcpy(to, &reg.value, 8);
      return;
    case Lane::i64:
      std::memcpy(to, &i, 8);
      return;
    case Lane::boolean:
      std::memcpy(to, &b, 1);
  }
}

int64_t Program::scratch_bytes() const {
  const int64_t one = slots * slot_bytes;
  return one <= kStackBytes ? 0 : one * chunks;
}

void Program::run(const RunArgs& args) const {
  const int64_t units = rows * tiles(), one = slots * slot_bytes;
  const auto run = [&](std::byte* tile_memory, int64_t begin, int64_t end) {
    if (by_rows)
      run_rows(*this, args, tile_memory, begin, end);
    else
      Runner(*this, args, tile_memory).run(begin, end);
  };
  parallel_for(0, units, grain, [&](int64_t begin, int64_t end) {
    if (one <= kStackBytes) {
      alignas(64) std::byte memory[kStackBytes];
      run(memory, begin, end);
    } else {
      run(offset(args.scratch, begin / grain * one), begin, end);
    }
  });
}

}  // namespace pelton::backend::cpu
