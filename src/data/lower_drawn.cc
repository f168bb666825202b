// SPDX-License-Identifier: Apache-2.0
// Stages whose options are drawn for each sample, inside a graph (data/graph_draw.h).
#include <cmath>
#include <numbers>

#include "data/lowering.h"

namespace pelton::data {

using ir::Ints;
using ir::ValueId;

ValueId Lowering::each(ValueId v) {
  return b_.rank(v) == 0 ? v : b_.unsqueeze(v, {1, 2, 3});
}

ValueId Lowering::drawn(const Args& a, const char* option) {
  return each(draws_->value(Drawn(a, option)));
}

ValueId Lowering::flag(const Args& a, const char* option) {
  return b_.op("ne", {drawn(a, option), b_.scalar(DType::f64, 0)});
}

// u8 pixels where the flag is set.
void Lowering::replace_where(ValueId flags, ValueId pixels) {
  value_ = b_.select(flags, pixels, value_);
}

Lowering::Entries Lowering::entries(const ColourMatrix& m) {
  Entries out;
  for (size_t i = 0; i < 12; ++i) out[i] = b_.scalar(DType::f32, m[i]);
  return out;
}

// a after b, in the order of the host's sums.
Lowering::Entries Lowering::product(const Entries& a, const Entries& b) {
  Entries out;
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 4; ++j) {
      ValueId sum = j == 3 ? a[4 * i + 3] : b_.scalar(DType::f32, 0);
      for (size_t k = 0; k < 3; ++k) sum = b_.add(sum, b_.mul(a[4 * i + k], b[4 * k + j]));
      out[4 * i + j] = sum;
    }
  return out;
}

void Lowering::recolour_drawn(const Entries& m) {
  if (padded_) settle();
  if (drawn_colour_)
    drawn_colour_ = product(m, *drawn_colour_);
  else if (colour_)
    drawn_colour_ = product(m, entries(*colour_));
  else
    drawn_colour_ = m;
  colour_.reset();
}

Lowering::Entries Lowering::drawn_matrix(const std::string& op, const Args& a) {
  auto f64 = [&](double v) { return b_.scalar(DType::f64, v); };
  Entries out = entries({});
  if (op == "brightness" || op == "contrast") {
    const ValueId v = b_.cast(drawn(a, "factor"), DType::f32);
    const ValueId add = b_.mul(b_.sub(b_.scalar(DType::f32, 1), v), b_.scalar(DType::f32, 127.5));
    for (size_t i = 0; i < 3; ++i) {
      out[5 * i] = v;
      if (op == "contrast") out[4 * i + 3] = add;
    }
    return out;
  }
  // The others are sums of constant matrices, weighed by functions of the draw.
  std::vector<std::pair<ColourMatrix, ValueId>> parts;
  if (op == "saturation") {
    const ValueId f = drawn(a, "factor");
    parts = {{saturation_matrix(0), b_.sub(f64(1), f)}, {saturation_matrix(1), f}};
  } else {
    // A turn of chroma: what stays, and what goes with the cosine and the sine of the angle.
    const ColourMatrix none = hue_matrix(0), quarter = hue_matrix(90), half = hue_matrix(180);
    ColourMatrix stays{}, cosine{}, sine{};
    for (size_t i = 0; i < 12; ++i) {
      stays[i] = (none[i] + half[i]) / 2;
      cosine[i] = (none[i] - half[i]) / 2;
      sine[i] = quarter[i] - stays[i];
    }
    const ValueId t = b_.mul(drawn(a, "degrees"), f64(std::numbers::pi / 180));
    parts = {{stays, f64(1)}, {cosine, b_.op("cos", {t})}, {sine, b_.op("sin", {t})}};
  }
  for (size_t i = 0; i < 12; ++i) {
    ValueId sum = f64(0);
    for (const auto& [m, weight] : parts) sum = b_.add(sum, b_.mul(weight, f64(m[i])));
    out[i] = b_.cast(sum, DType::f32);
  }
  return out;
}

void Lowering::drawn_flip(const Args& a) {
  sample();
  for (auto [option, axis] : {std::pair{"horizontal", kColumnAxis}, {"vertical", kRowAxis}}) {
    if (!a.param(option).is_random()) {
      if (a.boolean(option)) reverse(axis);
      continue;
    }
    const ValueId mirrored = b_.op("reverse", {value_}, {{"axes", Ints{axis}}});
    value_ = b_.select(flag(a, option), mirrored, value_);
  }
}

// Pixels [N, h, w, C] from rows and columns i64 that broadcast to [N, h, w], as rows of one long table.
ValueId Lowering::picked(ValueId rows, ValueId columns) {
  const Dim n = b_.shape(value_)[0];
  const Shape first{n, 1, 1};
  const ValueId start =
      b_.mul(b_.op("iota", {}, {{"dims", first}, {"axis", int64_t{0}}, {"dtype", DType::i64}}),
             b_.scalar(DType::i64, static_cast<double>(h_.value() * w_.value())));
  const ValueId row = b_.mul(rows, b_.scalar(DType::i64, static_cast<double>(w_.value())));
  const ValueId table = b_.reshape(value_, {n * h_ * w_, channels_});
  return b_.op("gather", {table, b_.add(b_.add(start, row), columns)}, {{"axis", int64_t{0}}});
}

// 0 .. size - 1 along an axis of [N, h, w].
ValueId Lowering::along(int axis, int64_t size, DType dtype) {
  Shape dims{1, 1, 1};
  dims[static_cast<size_t>(axis)] = size;
  const ValueId at = b_.op("iota", {}, {{"dims", dims}, {"axis", int64_t{axis}}, {"dtype", DType::i64}});
  return b_.cast(at, dtype);
}

// A part whose place is drawn.
void Lowering::drawn_crop(const Args& a) {
  const auto [w, h] = size_from(a);
  if (!h_.is_const() || !w_.is_const() || h_.value() < h || w_.value() < w)
    fail(ErrorCode::usage, cat("a part of ", w, "x", h, " at a drawn place of ", w_.str(), "x", h_.str()),
         where_, "pad or resize before");
  sample();
  apply_colour();
  auto places = [&](const char* option, int64_t room, int axis, int64_t size) {
    ValueId start = draws_->value(Drawn(a, option));
    if (b_.rank(start) == 1) start = b_.unsqueeze(start, {1, 2});
    start = b_.op("round", {b_.mul(start, b_.scalar(DType::f64, static_cast<double>(room)))});
    return b_.add(b_.cast(start, DType::i64), along(axis, size, DType::i64));
  };
  value_ = picked(places("y", h_.value() - h, kRowAxis, h), places("x", w_.value() - w, kColumnAxis, w));
  resize_to(h, w);
}

// As the host's stage: the first of ten drawn rectangles that fits.
void Lowering::drawn_erase(const Args& a) {
  if (!h_.is_const() || !w_.is_const())
    fail(ErrorCode::usage, "erase on pictures of open size", where_, "resize before");
  settle();
  const auto scale = a.numbers("scale"), ratio = a.numbers("ratio");
  const std::array<uint8_t, 3> fill = fill_from(a);
  const auto w = static_cast<double>(w_.value()), h = static_cast<double>(h_.value());
  auto f64 = [&](double v) { return b_.scalar(DType::f64, v); };
  auto i64 = [&](int64_t v) { return b_.scalar(DType::i64, static_cast<double>(v)); };
  auto between = [&](uint32_t slot, double low, double high) {
    return b_.add(b_.mul(draws_->uniform(slot), f64(high - low)), f64(low));
  };
  ValueId x0 = i64(0), y0 = i64(0), x1 = i64(0), y1 = i64(0);  // empty: none has fitted
  for (uint32_t slot = 64 + 36;; slot -= 4) {                  // from the last to the first, which wins
    const ValueId area = b_.mul(b_.mul(between(slot, scale[0], scale[1]), f64(w)), f64(h)),
                  aspect = b_.op("exp", {between(slot + 1, std::log(ratio[0]), std::log(ratio[1]))});
    auto side = [&](ValueId square) {
      return b_.cast(b_.op("round", {b_.op("sqrt", {square})}), DType::i64);
    };
    const ValueId ew = side(b_.mul(area, aspect)), eh = side(b_.div(area, aspect));
    auto within = [&](ValueId v, int64_t size) {
      return b_.op("and", {b_.op("ge", {v, i64(1)}), b_.op("lt", {v, i64(size)})});
    };
    const ValueId fits = b_.op("and", {within(ew, w_.value()), within(eh, h_.value())});
    auto start = [&](uint32_t s, ValueId size, int64_t all) {
      const ValueId room = b_.op("max", {b_.sub(i64(all + 1), size), i64(1)});
      return draws_->below(s, room);
    };
    const ValueId x = start(slot + 2, ew, w_.value()), y = start(slot + 3, eh, h_.value());
    x0 = b_.select(fits, x, x0), x1 = b_.select(fits, b_.add(x, ew), x1);
    y0 = b_.select(fits, y, y0), y1 = b_.select(fits, b_.add(y, eh), y1);
    if (slot == 64) break;
  }
  auto inside = [&](int axis, const Dim& size, ValueId low, ValueId high) {
    Shape along{1, 1, 1, 1};
    along[static_cast<size_t>(axis)] = size;
    const ValueId at = b_.op("iota", {}, {{"dims", along}, {"axis", int64_t{axis}}, {"dtype", DType::i64}});
    return b_.op("and", {b_.op("ge", {at, each(low)}), b_.op("lt", {at, each(high)})});
  };
  ValueId hole = b_.op("and", {inside(kRowAxis, h_, y0, y1), inside(kColumnAxis, w_, x0, x1)});
  if (a.param("probability").is_random()) hole = b_.op("and", {hole, flag(a, "probability")});
  std::vector<double> level(fill.begin(), fill.begin() + channels_);
  replace_where(hole, b_.constant(from_doubles(DType::u8, {channels_}, level)));
}

// rotate: positions in f64, taps at the four pixels around them, fill where the centre falls outside.
void Lowering::drawn_turn(const Args& a) {
  if (!h_.is_const() || !w_.is_const())
    fail(ErrorCode::usage, "turning pictures of open size", where_, "resize before");
  settle();
  const auto fill = fill_from(a);
  const int64_t h = h_.value(), w = w_.value();
  auto f64 = [&](double v) { return b_.scalar(DType::f64, v); };
  ValueId degrees = draws_->value(Drawn(a, "angle"));
  if (b_.rank(degrees) == 1) degrees = b_.unsqueeze(degrees, {1, 2});
  const ValueId t = b_.mul(degrees, f64(std::numbers::pi / 180)), c = b_.op("cos", {t}),
                s = b_.op("sin", {t});
  auto centred = [&](int axis, int64_t size) {
    return b_.add(along(axis, size, DType::f64), f64(0.5 - static_cast<double>(size) / 2));
  };
  const ValueId dx = centred(kColumnAxis, w), dy = centred(kRowAxis, h);
  const ValueId x = b_.add(b_.sub(b_.mul(c, dx), b_.mul(s, dy)), f64(static_cast<double>(w) / 2)),
                y = b_.add(b_.add(b_.mul(s, dx), b_.mul(c, dy)), f64(static_cast<double>(h) / 2));
  auto within = [&](ValueId v, int64_t size) {
    return b_.op("and", {b_.op("ge", {v, f64(0)}), b_.op("lt", {v, f64(static_cast<double>(size))})});
  };
  const ValueId seen = b_.unsqueeze(b_.op("and", {within(x, w), within(y, h)}), {3});
  auto pixel = [&](ValueId v, int64_t size) {  // the ends go on
    return b_.cast(b_.op("clamp", {v, f64(0), f64(static_cast<double>(size - 1))}), DType::i64);
  };
  ValueId turned;
  if (a.text("filter") == "nearest") {
    turned = picked(pixel(b_.op("floor", {y}), h), pixel(b_.op("floor", {x}), w));
  } else {
    const ValueId half = f64(0.5), one = f64(1), left = b_.op("floor", {b_.sub(x, half)}),
                  top = b_.op("floor", {b_.sub(y, half)});
    auto weight = [&](ValueId v, ValueId low) {
      return b_.unsqueeze(b_.cast(b_.sub(b_.sub(v, half), low), DType::f32), {3});
    };
    const ValueId right_part = weight(x, left), low_part = weight(y, top);
    const ValueId x0 = pixel(left, w), x1 = pixel(b_.add(left, one), w), y0 = pixel(top, h),
                  y1 = pixel(b_.add(top, one), h);
    auto mixed = [&](ValueId p, ValueId q, ValueId part) { return b_.add(p, b_.mul(b_.sub(q, p), part)); };
    auto line = [&](ValueId row) {
      return mixed(b_.cast(picked(row, x0), DType::f32), b_.cast(picked(row, x1), DType::f32), right_part);
    };
    turned = mixed(line(y0), line(y1), low_part);
    turned = b_.cast(b_.add(turned, b_.scalar(DType::f32, 0.5)), DType::u8);
  }
  std::vector<double> level(fill.begin(), fill.begin() + channels_);
  value_ = b_.select(seen, turned, b_.constant(from_doubles(DType::u8, {channels_}, level)));
}

bool Lowering::drawn_stage(const std::string& op, const Args& a) {
  auto random = [&](const char* option) { return a.param(option).is_random(); };
  if (op == "flip") {
    if (!random("horizontal") && !random("vertical")) return false;
    drawn_flip(a);
  } else if (op == "crop") {
    if (!random("x") && !random("y")) return false;
    drawn_crop(a);
  } else if (op == "erase") {
    drawn_erase(a);
  } else if (op == "rotate") {
    drawn_turn(a);
  } else if (op == "brightness" || op == "contrast" || op == "saturation") {
    if (!random("factor")) return false;
    recolour_drawn(drawn_matrix(op, a));
  } else if (op == "hue") {
    if (!random("degrees")) return false;
    recolour_drawn(drawn_matrix(op, a));
  } else if (op == "grayscale") {
    if (!random("probability")) return false;
    const Entries grey = entries(saturation_matrix(0)), same = entries(saturation_matrix(1));
    const ValueId chosen = flag(a, "probability");
    Entries m;
    for (size_t i = 0; i < 12; ++i) m[i] = b_.select(chosen, grey[i], same[i]);
    recolour_drawn(m);
  } else if (op == "posterize") {
    if (!random("probability") && !random("bits")) return false;
    settle();
    const ValueId lost = b_.sub(b_.scalar(DType::i32, 8), b_.cast(drawn(a, "bits"), DType::i32));
    const ValueId mask =
        b_.op("and", {b_.op("shift_left", {b_.scalar(DType::i32, 255), lost}), b_.scalar(DType::i32, 255)});
    replace_where(flag(a, "probability"), b_.op("and", {value_, b_.cast(mask, DType::u8)}));
  } else if (op == "solarize") {
    if (!random("probability") && !random("threshold")) return false;
    settle();
    const ValueId bright =
        b_.op("ge", {b_.cast(value_, DType::i32), b_.cast(drawn(a, "threshold"), DType::i32)});
    replace_where(b_.op("and", {bright, flag(a, "probability")}), b_.sub(b_.scalar(DType::u8, 255), value_));
  } else {
    return false;
  }
  return true;
}

}  // namespace pelton::data
