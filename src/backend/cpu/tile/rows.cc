// SPDX-License-Identifier: Apache-2.0
// Running a short tile program over whole rows: what is one value a row is computed for many rows at once,
// and from row to row only addresses advance. Little stands between the loads of two rows then, so that the
// processor starts on the next row, which lies on another page, while this one is still on its way.
#include <algorithm>

#include "backend/cpu/support.h"
#include "backend/cpu/tile/program.h"

namespace pelton::backend::cpu {
namespace {

constexpr int64_t kBatch = 32;                   // rows
constexpr int64_t kStartBytes = 256;             // of a row, fetched while the row before it is worked on
constexpr size_t kMaxPasses = 8, kMaxOnes = 16;  // bounds of what lies on the stack

// A few instructions an element: no series, no division.
bool is_light(Code code) {
  switch (code) {
    case Code::reciprocal:
    case Code::exp:
    case Code::log:
    case Code::sqrt:
    case Code::rsqrt:
    case Code::tanh:
    case Code::erf:
    case Code::sigmoid:
    case Code::silu:
    case Code::gelu_erf:
    case Code::gelu_tanh:
    case Code::elu:
    case Code::softsign:
    case Code::div:
    case Code::add_gelu_erf:
    case Code::add_gelu_tanh:
    case Code::silu_mul:
    case Code::sigmoid_mul:
    case Code::tanh_mul:
      return false;
    default:
      return true;
  }
}

class RowRunner {
 public:
  RowRunner(const Program& p, const RunArgs& args, std::byte* tiles) : p_(p), args_(args), tiles_(tiles) {}

  void run(int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end;) {
      const int64_t count = std::min({kBatch, end - row, p_.outer.back() - row % p_.outer.back()});
      bind(row, count);
      for (int64_t i = 0; i < count; ++i) {
        if (p_.streams && p_.light) fetch_starts();
        for (size_t k = 0; k < passes_; ++k) {
          Pass& pass = pass_[k];
          pass.f(pass.step, p_.inner_count);
          for (int o = 0; o < pass.operands; ++o)
            pass.step.in[o] = static_cast<const std::byte*>(pass.step.in[o]) + pass.in_by[o];
          pass.step.out = static_cast<std::byte*>(pass.step.out) + pass.out_by;
        }
      }
      row += count;
    }
  }

 private:
  // Where a register lies in the first row of a batch, and how far it moves to the next one, in bytes.
  struct Place {
    std::byte* at;
    int64_t by;
  };
  struct Pass {
    StepFunction f;
    Step step;
    int operands;
    int64_t in_by[5], out_by;
  };

  // The hardware follows a row, but not to the next page. An address behind the last row does no harm.
  void fetch_starts() const {
    const int64_t bytes = std::min(kStartBytes, p_.inner_count * 4);
    for (size_t k = 0; k < passes_; ++k) {
      const Pass& pass = pass_[k];
      for (int o = 0; o < pass.operands; ++o)
        if (pass.in_by[o] && !pass.step.one[o]) {
          const std::byte* next = static_cast<const std::byte*>(pass.step.in[o]) + pass.in_by[o];
          for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(next + b, 0, 2);
        }
      if (pass.out_by)
        for (int64_t b = 0; b < bytes; b += 64)
          __builtin_prefetch(static_cast<std::byte*>(pass.step.out) + pass.out_by + b, 1, 2);
    }
  }
  // The offset, in elements, of a row in an operand.
  int64_t offset_of(int64_t row, const std::vector<int64_t>& strides) const {
    int64_t at = 0;
    for (size_t d = p_.outer.size(); d-- > 0; row /= p_.outer[d]) at += row % p_.outer[d] * strides[d];
    return at;
  }
  void bind(int64_t row, int64_t count) {
    size_t ones = 0;
    for (size_t r = 0; r < p_.registers.size(); ++r) {
      const Register& reg = p_.registers[r];
      if (reg.kind == Register::source) {
        const Source& s = p_.sources[static_cast<size_t>(reg.index)];
        const void* data = s.input >= 0 ? args_.in[static_cast<size_t>(s.input)] : s.constant.data();
        const int64_t width = bits(s.dtype) / 8, by = s.outer.back();
        auto* first = static_cast<std::byte*>(const_cast<void*>(data)) + offset_of(row, s.outer) * width;
        if (s.one) {
          place_[r] = {ones_[ones++], by ? lane_bytes(reg.lane) : 0};
          s.load(first, by, place_[r].at, by ? count : 1);
        } else {
          place_[r] = {first, by * width};
        }
      } else if (reg.kind == Register::constant) {
        place_[r] = {ones_[ones++], 0};
        set_constant(reg, place_[r].at);
      } else if (reg.one) {
        place_[r] = {ones_[ones++], 0};
      } else if (reg.slot >= 0) {
        place_[r] = {tiles_ + reg.slot * p_.slot_bytes, 0};
      }
    }
    for (size_t k = 0; k < p_.sinks.size(); ++k) {
      const Sink& s = p_.sinks[k];
      const int64_t width = bits(s.dtype) / 8;
      auto* first = static_cast<std::byte*>(args_.out[k]) + offset_of(row, s.outer) * width;
      place_[static_cast<size_t>(s.reg)] = {first, s.outer.back() * width};
    }
    passes_ = 0;
    for (const Instruction& i : p_.code) add(i, count);
  }
  // What runs on single values runs here, on those of all the rows.
  void add(const Instruction& i, int64_t count) {
    Pass& pass = pass_[passes_];
    pass = {i.f, {}, 0, {}, 0};
    Place& out = place_[static_cast<size_t>(i.out)];
    bool same = true;  // in every row
    for (; pass.operands < 5 && i.in[pass.operands] >= 0; ++pass.operands) {
      const auto r = static_cast<size_t>(i.in[pass.operands]);
      pass.step.in[pass.operands] = place_[r].at;
      pass.in_by[pass.operands] = place_[r].by;
      pass.step.one[pass.operands] = i.one ? place_[r].by == 0 : p_.registers[r].one;
      same &= place_[r].by == 0;
    }
    pass.step.out = out.at;
    pass.step.imm[0] = i.imm[0];
    pass.step.imm[1] = i.imm[1];
    if (!i.one) {
      pass.out_by = out.by;
      ++passes_;
      return;
    }
    out.by = same ? 0 : lane_bytes(p_.registers[static_cast<size_t>(i.out)].lane);
    i.f(pass.step, same ? 1 : count);
  }

  const Program& p_;
  const RunArgs& args_;
  std::byte* tiles_;
  size_t passes_ = 0;
  Pass pass_[kMaxPasses + 1];
  Place place_[kMaxRegisters];
  alignas(64) std::byte ones_[kMaxOnes][kBatch * 8];
};

}  // namespace

void Program::choose_rows() {
  size_t ones = 0;
  for (const Register& r : registers) ones += r.one || r.kind == Register::constant;
  by_rows = !has_rows && tiles() == 1 && rows > 1 && passes <= static_cast<int64_t>(kMaxPasses) &&
            ones <= kMaxOnes &&
            std::all_of(code.begin(), code.end(), [](const Instruction& i) { return !i.wide; }) &&
            std::all_of(sources.begin(), sources.end(), [](const Source& s) { return s.one || s.direct; }) &&
            std::all_of(sinks.begin(), sinks.end(), [](const Sink& s) { return s.direct; });
  light =
      std::all_of(code.begin(), code.end(), [](const Instruction& i) { return i.one || is_light(i.code); });
}

void run_rows(const Program& p, const RunArgs& args, std::byte* tiles, int64_t begin, int64_t end) {
  RowRunner(p, args, tiles).run(begin, end);
}

}  // namespace pelton::backend::cpu
