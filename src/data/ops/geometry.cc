// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "data/ops/stage.h"

namespace pelton::data {
namespace {

StageFn make_crop(const Args& a, Match) {
  return [size = size_from(a), x = Drawn(a, "x"), y = Drawn(a, "y"), fill = fill_from(a)](Sample& s,
                                                                                          const Draw& d) {
    LazyImage& p = s.picture();
    p.set_fill(fill);
    // Halves round to even, as Python's round does in other libraries' centre crops.
    const int left = static_cast<int>(std::nearbyint((p.width() - size.first) * x(d)));
    const int top = static_cast<int>(std::nearbyint((p.height() - size.second) * y(d)));
    crop_sample(s, {left, top, left + size.first, top + size.second});
  };
}

StageFn make_resize(const Args& a, Match) {
  const std::string mode = a.text("mode");
  const auto size = size_from(a);
  if (mode != "stretch" && a.numbers("size").size() != 1)
    fail(ErrorCode::usage, cat("mode = \"", mode, "\" takes one size"), a.where());
  return [size, mode, filter = filter_from(a), antialias = a.boolean("antialias")](Sample& s, const Draw&) {
    const int w = s.picture().width(), h = s.picture().height();
    if (mode == "stretch") return resize_sample(s, size.first, size.second, filter, antialias);
    const int from = mode == "shorter" ? std::min(w, h) : std::max(w, h);
    auto side = [&](int v) {
      return v == from ? size.first
                       : std::max(1, static_cast<int>(static_cast<int64_t>(size.first) * v / from));
    };
    resize_sample(s, side(w), side(h), filter, antialias);
  };
}

StageFn make_random_resized_crop(const Args& a, Match) {
  const auto scale = a.numbers("scale"), ratio = a.numbers("ratio");
  if (scale.size() != 2 || scale[0] > scale[1] || !(scale[0] > 0) || ratio.size() != 2 ||
      ratio[0] > ratio[1] || !(ratio[0] > 0))
    fail(ErrorCode::usage, "'scale' and 'ratio' are [low, high] with 0 < low <= high", a.where());
  return [size = size_from(a), scale, ratio, filter = filter_from(a), antialias = a.boolean("antialias")](
             Sample& s, const Draw& d) {
    const int w = s.picture().width(), h = s.picture().height();
    Rect r;
    for (uint32_t attempt = 0; attempt < 10 && r.width() == 0; ++attempt) {
      const uint32_t slot = 64 + 4 * attempt;
      const double area = static_cast<double>(w) * h * d.uniform(slot, scale[0], scale[1]);
      const double aspect = std::exp(d.uniform(slot + 1, std::log(ratio[0]), std::log(ratio[1])));
      const int cw = static_cast<int>(std::lrint(std::sqrt(area * aspect))),
                ch = static_cast<int>(std::lrint(std::sqrt(area / aspect)));
      if (cw < 1 || ch < 1 || cw > w || ch > h) continue;
      const int x = static_cast<int>(d.below(slot + 2, w - cw + 1)),
                y = static_cast<int>(d.below(slot + 3, h - ch + 1));
      r = {x, y, x + cw, y + ch};
    }
    if (r.width() == 0) {  // the largest centred part within the ratios
      const double whole = static_cast<double>(w) / h, aspect = std::clamp(whole, ratio[0], ratio[1]);
      const int cw = whole > aspect ? std::max(1, static_cast<int>(std::lrint(h * aspect))) : w;
      const int ch = whole < aspect ? std::max(1, static_cast<int>(std::lrint(w / aspect))) : h;
      r = {(w - cw) / 2, (h - ch) / 2, (w - cw) / 2 + cw, (h - ch) / 2 + ch};
    }
    crop_sample(s, r);
    resize_sample(s, size.first, size.second, filter, antialias);
  };
}

// Left and right key points change places: rows of f32 [n, k, 3].
void swap_keypoints(Tensor& points, const std::vector<double>& pairs) {
  const int64_t k = points.dims()[1];
  float* p = points.as_mutable<float>();
  for (int64_t i = 0; i < points.dims()[0]; ++i)
    for (size_t j = 0; j + 1 < pairs.size(); j += 2) {
      const auto a = static_cast<int64_t>(pairs[j]), b = static_cast<int64_t>(pairs[j + 1]);
      if (a >= k || b >= k)
        fail(ErrorCode::usage, cat("'swap_keypoints' names point ", std::max(a, b), " of ", k));
      std::swap_ranges(p + (i * k + a) * 3, p + (i * k + a) * 3 + 3, p + (i * k + b) * 3);
    }
}

StageFn make_flip(const Args& a, Match) {
  const std::vector<double>& pairs = a.numbers("swap_keypoints");
  for (double v : pairs)
    if (v != std::floor(v) || pairs.size() % 2)
      fail(ErrorCode::usage, "'swap_keypoints' is a list of pairs of whole numbers", a.where(),
           "write [1, 2, 3, 4] for points 1 with 2 and 3 with 4");
  return [across = Drawn(a, "horizontal"), down = Drawn(a, "vertical"), pairs](Sample& s, const Draw& d) {
    LazyImage& p = s.picture();
    const double w = p.width(), h = p.height();
    const bool x = across.flag(d), y = down.flag(d);
    if (x) p.mirror_x();
    if (y) p.mirror_y();
    if ((x || y) && has_targets(s))
      move_targets(s, {x ? -1.0 : 1.0, 0, x ? w : 0, 0, y ? -1.0 : 1.0, y ? h : 0, 0, 0, 1}, p.width(),
                   p.height());
    if (Tensor* points = x && !pairs.empty() ? s.find("keypoints") : nullptr) swap_keypoints(*points, pairs);
  };
}

StageFn make_pad(const Args& a, Match) {
  const auto& v = a.numbers("border");
  if (v.size() != 1 && v.size() != 2 && v.size() != 4)
    fail(ErrorCode::usage, cat("'border' has ", v.size(), " numbers"), a.where(),
         "write [all], [x, y] or [left, top, right, bottom]");
  std::array<int, 4> b{};
  for (size_t i = 0; i < 4; ++i) b[i] = static_cast<int>(v[i % v.size()]);
  return [b, fill = fill_from(a), multiple = static_cast<int>(a.integer("multiple"))](Sample& s,
                                                                                      const Draw&) {
    LazyImage& p = s.picture();
    p.set_fill(fill);
    const int w = p.width() + b[0] + b[2], h = p.height() + b[1] + b[3];
    const int more_x = (multiple - w % multiple) % multiple, more_y = (multiple - h % multiple) % multiple;
    p.pad(b[0], b[1], b[2] + more_x, b[3] + more_y);
    if (has_targets(s))
      move_targets(s, {1, 0, static_cast<double>(b[0]), 0, 1, static_cast<double>(b[1]), 0, 0, 1}, p.width(),
                   p.height());
  };
}

// The picture as a part of a larger one of fill.
StageFn make_paste(const Args& a, Match) {
  return [ratio = Drawn(a, "ratio"), x = Drawn(a, "x"), y = Drawn(a, "y"), chance = Drawn(a, "probability"),
          fill = fill_from(a)](Sample& s, const Draw& d) {
    if (!chance.flag(d)) return;
    LazyImage& p = s.picture();
    p.set_fill(fill);
    const double r = ratio(d);
    const int w = p.width(), h = p.height(), out_w = std::max(w, static_cast<int>(std::lrint(w * r))),
              out_h = std::max(h, static_cast<int>(std::lrint(h * r)));
    const int left = static_cast<int>(std::nearbyint((out_w - w) * x(d))),
              top = static_cast<int>(std::nearbyint((out_h - h) * y(d)));
    p.pad(left, top, out_w - w - left, out_h - h - top);
    if (has_targets(s))
      move_targets(s, {1, 0, static_cast<double>(left), 0, 1, static_cast<double>(top), 0, 0, 1}, out_w,
                   out_h);
  };
}

}  // namespace

std::vector<StageKind> geometry_stage_kinds() {
  using T = OptionType;
  const OptionSpec size = {"size", T::numbers, {}, "one number, or [height, width]", 1, 1 << 16};
  auto random = [](const char* name, Param fallback, const char* doc, double low = kAny,
                   double high = kNone) {
    return OptionSpec{name, T::number, std::move(fallback), doc, low, high, {}, true};
  };
  auto coin_option = [](const char* name, Param fallback, const char* doc) {
    return OptionSpec{name, T::boolean, std::move(fallback), doc, kAny, kNone, {}, true};
  };
  return {
      {{"crop",
        "a part of the picture; what lies outside it is fill",
        {size, random("x", 0.5, "0: left, 0.5: centre, 1: right", 0, 1),
         random("y", 0.5, "0: top, 0.5: centre, 1: bottom", 0, 1), fill_option()}},
       make_crop},
      {{"resize",
        "another size",
        {size,
         {"mode",
          T::text,
          "stretch",
          "what takes the size: both sides, the shorter one or the longer one (the other follows)",
          kAny,
          kNone,
          {"stretch", "shorter", "longer"}},
         filter_option(),
         antialias_option()}},
       make_resize},
      {{"random_resized_crop",
        "a random part of random area and aspect ratio, resized",
        {size,
         {"scale", T::numbers, std::vector<double>{0.08, 1}, "[low, high] share of the area", 0, 100},
         {"ratio", T::numbers, std::vector<double>{3.0 / 4, 4.0 / 3}, "[low, high] width over height", 0,
          1e4},
         filter_option(),
         antialias_option()}},
       make_random_resized_crop},
      {{"flip",
        "mirrors the picture",
        {coin_option("horizontal", coin(0.5), "left and right"),
         coin_option("vertical", false, "top and bottom"),
         {"swap_keypoints", T::numbers, std::vector<double>{},
          "pairs of key points that change names with left and right: [1, 2, 3, 4] is 1 with 2, 3 with 4", 0,
          1 << 16}}},
       make_flip},
      {{"pad",
        "a border of fill",
        {{"border", T::numbers, std::vector<double>{0},
          "[all], [x, y] or [left, top, right, bottom] in pixels", 0, 1 << 16},
         {"multiple", T::integer, 1, "both sides grow (right and bottom) to a multiple of this", 1, 1 << 16},
         fill_option()}},
       make_pad},
      {{"paste",
        "the picture as a part of a larger one of fill (zooms out)",
        {random("ratio", uniform(1, 4), "sides of the larger one over the picture's", 1, 100),
         random("x", uniform(0, 1), "0: left, 1: right", 0, 1),
         random("y", uniform(0, 1), "0: top, 1: bottom", 0, 1),
         coin_option("probability", true, "a distribution { coin = p } leaves pictures as they are"),
         fill_option()}},
       make_paste}};
}

}  // namespace pelton::data
