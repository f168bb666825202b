// SPDX-License-Identifier: Apache-2.0
#include "data/graph_draw.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace pelton::data {

using ir::Ints;
using ir::ValueId;

namespace {

constexpr double kMask = 0xffffffffu;

}  // namespace

GraphDraw::GraphDraw(ir::Builder& b, uint64_t seed, ValueId epoch, ValueId indices) : b_(b), seed_(seed) {
  const ValueId e = b.cast(epoch, DType::u64), i = b.unsqueeze(b.cast(indices, DType::u64), {1});
  epoch_low_ = b.op("and", {e, number(kMask)});
  epoch_high_ = b.op("shift_right", {e, number(32)});
  index_low_ = b.op("and", {i, number(kMask)});
  index_high_ = b.op("shift_right", {i, number(32)});
}

ValueId GraphDraw::number(double v) {
  return b_.scalar(DType::u64, v);
}

GraphDraw::Words GraphDraw::philox(Words c, ValueId key0, ValueId key1) {
  auto low = [&](ValueId v) { return b_.op("and", {v, number(kMask)}); };
  auto high = [&](ValueId v) { return b_.op("shift_right", {v, number(32)}); };
  auto mixed = [&](ValueId x, ValueId y, ValueId z) { return b_.op("xor", {b_.op("xor", {x, y}), z}); };
  for (int round = 0; round < 10; ++round) {
    const ValueId a = b_.mul(c.w[0], number(0xD2511F53)), d = b_.mul(c.w[2], number(0xCD9E8D57));
    c = {{mixed(high(d), c.w[1], key0), low(d), mixed(high(a), c.w[3], key1), low(a)}};
    key0 = low(b_.add(key0, number(0x9E3779B9)));
    key1 = low(b_.add(key1, number(0xBB67AE85)));
  }
  return c;
}

void GraphDraw::begin(uint32_t stage, std::vector<uint32_t> slots) {
  slots_ = std::move(slots);
  if (slots_.empty()) return;
  std::vector<double> numbers(slots_.begin(), slots_.end());
  const ValueId slot = b_.constant(from_doubles(DType::u64, {std::ssize(slots_)}, numbers));
  const Words key = philox({{epoch_low_, epoch_high_, number(stage), slot}},
                           number(static_cast<uint32_t>(seed_)), number(static_cast<double>(seed_ >> 32)));
  words_ = philox({{index_low_, index_high_, number(0), key.w[2]}}, key.w[0], key.w[1]);
}

ValueId GraphDraw::word(uint32_t slot, int k) {
  const auto at = std::ranges::find(slots_, slot);
  PELTON_CHECK(at != slots_.end(), "slot ", slot);
  const ValueId all = words_.w[k];
  const ValueId one = b_.op(
      "slice", {all},
      {{"axes", Ints{1}}, {"starts", Shape{at - slots_.begin()}}, {"sizes", Shape{1}}, {"steps", Ints{1}}});
  return b_.reshape(one, {b_.shape(all)[0]});
}

ValueId GraphDraw::bits(uint32_t slot, int low) {
  return b_.op("or", {b_.op("shift_left", {word(slot, low + 1), number(32)}), word(slot, low)});
}

ValueId GraphDraw::uniform(uint32_t slot) {
  const ValueId top = b_.cast(b_.op("shift_right", {bits(slot, 0), number(11)}), DType::f64);
  return b_.mul(top, b_.scalar(DType::f64, 0x1p-53));
}

ValueId GraphDraw::normal(uint32_t slot) {
  auto f = [&](double v) { return b_.scalar(DType::f64, v); };
  const ValueId u = b_.mul(b_.add(b_.cast(bits(slot, 0), DType::f64), f(0.5)), f(0x1p-64)),
                v = b_.mul(b_.cast(bits(slot, 2), DType::f64), f(0x1p-64));
  const ValueId radius = b_.op("sqrt", {b_.mul(b_.op("log", {u}), f(-2))});
  return b_.mul(radius, b_.op("cos", {b_.mul(v, f(2 * std::numbers::pi))}));
}

// The upper 64 bits of 64 random ones times n, for n below 2^32.
ValueId GraphDraw::below(uint32_t slot, ValueId n) {
  const ValueId m = b_.cast(n, DType::u64);
  const ValueId rest = b_.op("shift_right", {b_.mul(word(slot, 0), m), number(32)});
  return b_.cast(b_.op("shift_right", {b_.add(b_.mul(word(slot, 1), m), rest), number(32)}), DType::i64);
}

ValueId GraphDraw::value(const Drawn& d) {
  auto f = [&](double v) { return b_.scalar(DType::f64, v); };
  const Param& p = d.param;
  const uint32_t slot = d.slot;
  switch (p.kind) {
    case Param::Kind::uniform:
      return b_.add(b_.mul(uniform(slot), f(p.numbers[1] - p.numbers[0])), f(p.numbers[0]));
    case Param::Kind::normal: {
      ValueId v = b_.add(b_.mul(normal(slot), f(p.numbers[1])), f(p.numbers[0]));
      if (std::isfinite(d.low)) v = b_.op("max", {v, f(d.low)});
      if (std::isfinite(d.high)) v = b_.op("min", {v, f(d.high)});
      return v;
    }
    case Param::Kind::coin:
      return b_.cast(b_.op("lt", {uniform(slot), f(p.numbers[0])}), DType::f64);
    case Param::Kind::choice: {
      const auto n = std::ssize(p.numbers);
      const ValueId at = below(slot, b_.scalar(DType::i64, static_cast<double>(n)));
      return b_.op("gather", {b_.constant(from_doubles(DType::f64, {n}, p.numbers)), at},
                   {{"axis", int64_t{0}}});
    }
    default:
      return f(p.numbers.empty() ? 0 : p.numbers[0]);
  }
}

}  // namespace pelton::data
