// SPDX-License-Identifier: Apache-2.0
// Both forms are one template over the arithmetic, so they cannot drift apart. f64 inside: a rate must not
// depend on how many updates an f32 can count.
#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace pelton::train {

using ir::Builder;
using ir::ValueId;

namespace {

// Scalars of the graph.
struct Symbolic {
  Builder& b;
  using Value = ValueId;
  Value number(double v) const { return b.scalar(DType::f64, v); }
  Value add(Value x, Value y) const { return b.add(x, y); }
  Value mul(Value x, Value y) const { return b.mul(x, y); }
  Value cosine(Value x) const { return b.op("cos", {x}); }
  Value power(Value x, double p) const { return b.op("pow", {x, number(p)}); }
  Value clamp01(Value x) const { return b.op("min", {b.op("max", {x, number(0)}), number(1)}); }
  Value below(Value x, Value limit, Value yes, Value no) const {
    return b.select(b.op("lt", {x, limit}), yes, no);
  }
};

struct Plain {
  using Value = double;
  Value number(double v) const { return v; }
  Value add(Value x, Value y) const { return x + y; }
  Value mul(Value x, Value y) const { return x * y; }
  Value cosine(Value x) const { return std::cos(x); }
  Value power(Value x, double p) const { return std::pow(x, p); }
  Value clamp01(Value x) const { return std::min(std::max(x, 0.0), 1.0); }
  Value below(Value x, Value limit, Value yes, Value no) const { return x < limit ? yes : no; }
};

template <class M>
class Rate {
 public:
  using V = typename M::Value;
  Rate(M math, const Schedule& s) : m_(math), s_(s) {}

  V at(V done) const {
    double warmup = static_cast<double>(s_.warmup);
    V factor = main(done);
    if (s_.warmup > 0) {
      // Update 0 of the rise is already above warmup_from, its last one at the base rate.
      V part = m_.mul(m_.add(done, m_.number(1)), m_.number(1 / warmup));
      V rising = line(s_.warmup_from, 1, part);
      factor = m_.below(done, m_.number(warmup), rising, factor);
    }
    return m_.mul(factor, m_.number(s_.lr));
  }

 private:
  V line(double from, double to, V part) const {
    return m_.add(m_.number(from), m_.mul(part, m_.number(to - from)));
  }
  V half_wave(double from, double to, V part) const {
    V wave = m_.cosine(m_.mul(part, m_.number(std::numbers::pi)));
    return m_.add(m_.number((from + to) / 2), m_.mul(wave, m_.number((from - to) / 2)));
  }
  // Fraction of the updates after the warm-up that are done.
  V progress(V done) const {
    double length = std::max<double>(1, static_cast<double>(s_.total - s_.warmup));
    return m_.clamp01(
        m_.mul(m_.add(done, m_.number(-static_cast<double>(s_.warmup))), m_.number(1 / length)));
  }
  V main(V done) const {
    if (s_.name == "cosine") return half_wave(1, s_.end, progress(done));
    if (s_.name == "polynomial") {
      V left = m_.add(m_.number(1), m_.mul(progress(done), m_.number(-1)));
      return m_.add(m_.number(s_.end), m_.mul(m_.power(left, s_.power), m_.number(1 - s_.end)));
    }
    if (s_.name == "step") {
      V factor = m_.number(1);
      double value = 1;
      for (int64_t at : s_.at) {
        value *= s_.gamma;
        factor = m_.below(done, m_.number(static_cast<double>(at)), factor, m_.number(value));
      }
      return factor;
    }
    if (s_.name == "one_cycle") {
      // The peak and the end are reached exactly at their updates.
      double top = s_.rise * static_cast<double>(s_.total) - 1, last = static_cast<double>(s_.total) - 1;
      V up = m_.clamp01(m_.mul(done, m_.number(1 / std::max(top, 1e-9))));
      V down = m_.clamp01(m_.mul(m_.add(done, m_.number(-top)), m_.number(1 / std::max(last - top, 1e-9))));
      return m_.below(done, m_.number(top), half_wave(s_.start, 1, up), half_wave(1, s_.final, down));
    }
    return m_.number(1);
  }

  M m_;
  const Schedule& s_;
};

}  // namespace

ValueId schedule_rate(Builder& b, const Schedule& s, ValueId done) {
  b.set_name("schedule");
  return b.cast(Rate<Symbolic>({b}, s).at(b.cast(done, DType::f64)), DType::f32);
}

double schedule_rate(const Schedule& s, int64_t done) {
  return Rate<Plain>({}, s).at(static_cast<double>(done));
}

}  // namespace pelton::train
