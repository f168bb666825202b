// SPDX-License-Identifier: Apache-2.0
// Stages that join several samples: mosaic and copy_paste. Which others come in is drawn like everything
// else, so a joined sample too depends on seed, epoch and index only.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "data/ops/stage.h"

namespace pelton::data {
namespace {

constexpr uint32_t kOtherSlot = 64, kPlaceSlot = 96, kObjectSlot = 1024;

// The sample's picture made as large as width x height: scaled until both sides reach, then cut at a drawn
// place.
void cover(Sample& s, int width, int height, Filter filter, bool antialias, double at_x, double at_y) {
  LazyImage& p = s.picture();
  const double scale =
      std::min(static_cast<double>(p.width()) / width, static_cast<double>(p.height()) / height);
  const int w = std::clamp(static_cast<int>(std::lrint(width * scale)), 1, p.width()),
            h = std::clamp(static_cast<int>(std::lrint(height * scale)), 1, p.height());
  const int x = static_cast<int>(std::nearbyint((p.width() - w) * at_x)),
            y = static_cast<int>(std::nearbyint((p.height() - h) * at_y));
  crop_sample(s, {x, y, x + w, y + h});
  resize_sample(s, width, height, filter, antialias);
}

void put(const Tensor& part, Tensor& canvas, int left, int top) {
  const int64_t h = part.dims()[0], row = part.dims()[1] * part.dims()[2], c = part.dims()[2];
  if (c != canvas.dims()[2])
    fail(ErrorCode::bad_format, cat("pictures of ", c, " and of ", canvas.dims()[2], " channels meet"));
  uint8_t* to = canvas.as_mutable<uint8_t>();
  for (int64_t y = 0; y < h; ++y)
    std::memcpy(to + ((top + y) * canvas.dims()[1] + left) * c, part.as<uint8_t>() + y * row,
                static_cast<size_t>(row));
}

JoinFn make_mosaic(const Args& a) {
  const auto centre = a.numbers("centre");
  if (centre.size() != 2 || centre[0] > centre[1] || !(centre[0] > 0 && centre[1] < 1))
    fail(ErrorCode::usage, "'centre' is [low, high] with 0 < low <= high < 1", a.where());
  const auto size = size_from(a);
  if (size.first < 2 || size.second < 2)
    fail(ErrorCode::usage, "a mosaic has at least 2 x 2 pixels", a.where());
  return [size, centre, filter = filter_from(a), antialias = a.boolean("antialias"),
          chance = Drawn(a, "probability")](Sample& s, const Draw& d, const Others& others) {
    const int w = size.first, h = size.second;
    s.picture();
    if (!chance.flag(d))
      return cover(s, w, h, filter, antialias, d.uniform(kPlaceSlot), d.uniform(kPlaceSlot + 1));
    const int cx = std::clamp(
                  static_cast<int>(std::lrint(w * d.uniform(kOtherSlot - 2, centre[0], centre[1]))), 1,
                  w - 1),
              cy = std::clamp(
                  static_cast<int>(std::lrint(h * d.uniform(kOtherSlot - 1, centre[0], centre[1]))), 1,
                  h - 1);
    std::vector<Sample> parts;
    parts.push_back(std::move(s));
    for (uint32_t k = 0; k < 3; ++k) parts.push_back(others.make(d.below(kOtherSlot + k, others.count)));
    Tensor canvas;
    for (uint32_t k = 0; k < 4; ++k) {
      Sample& part = parts[k];
      const int left = k % 2 ? cx : 0, top = k / 2 ? cy : 0, pw = k % 2 ? w - cx : cx,
                ph = k / 2 ? h - cy : cy;
      cover(part, pw, ph, filter, antialias, d.uniform(kPlaceSlot + 2 * k),
            d.uniform(kPlaceSlot + 2 * k + 1));
      const Tensor pixels = part.picture().pixels();
      if (k == 0) canvas = Tensor(DType::u8, {h, w, pixels.dims()[2]});
      put(pixels, canvas, left, top);
      if (has_targets(part))
        move_targets(part, {1, 0, static_cast<double>(left), 0, 1, static_cast<double>(top), 0, 0, 1}, w, h);
    }
    s = std::move(parts[0]);
    for (size_t k = 1; k < 4; ++k) append_objects(s, parts[k]);
    s.picture().replace(std::move(canvas));
  };
}

// Calls f(x, y) for each pixel of object `row`: those of its mask, or all of its box when there are no masks.
template <class F>
void over_object(const Tensor& boxes, const Tensor* masks, int64_t row, int width, int height, F f) {
  const float* b = boxes.as<float>() + 4 * row;
  const int x0 = std::clamp(static_cast<int>(std::floor(b[0])), 0, width),
            y0 = std::clamp(static_cast<int>(std::floor(b[1])), 0, height),
            x1 = std::clamp(static_cast<int>(std::ceil(b[2])), 0, width),
            y1 = std::clamp(static_cast<int>(std::ceil(b[3])), 0, height);
  const uint8_t* m = masks ? masks->as<uint8_t>() + row * width * height : nullptr;
  for (int y = y0; y < y1; ++y)
    for (int x = x0; x < x1; ++x)
      if (!m || m[y * width + x]) f(x, y);
}

// Objects of another picture land on this one, where they were. What they hide of this picture's objects is
// taken from masks, and objects hidden but for `visible` of their pixels go.
JoinFn make_copy_paste(const Args& a) {
  return [share = a.number("share"), visible = a.number("visible"), chance = Drawn(a, "probability")](
             Sample& s, const Draw& d, const Others& others) {
    s.at("boxes");  // lists the fields when there are none
    if (!chance.flag(d)) return;
    Sample from = others.make(d.below(kOtherSlot, others.count));
    Tensor pixels = s.picture().pixels();
    const int w = s.picture().width(), h = s.picture().height();
    if (from.picture().width() != w || from.picture().height() != h)
      resize_sample(from, w, h, Filter::linear, true);
    for (Sample* one : {&s, &from}) {
      check_targets(*one);
      if (const Tensor* m = one->find("masks"); m && (m->dims()[1] != h || m->dims()[2] != w))
        fail(ErrorCode::bad_format, cat("'masks' is ", *m, " of a picture of ", w, " x ", h));
    }
    std::vector<int64_t> taken;
    for (int64_t i = 0; i < from.at("boxes").dims()[0]; ++i)
      if (d.coin(kObjectSlot + static_cast<uint32_t>(i), share)) taken.push_back(i);
    keep_objects(from, taken);
    if (taken.empty()) return;
    const Tensor source = from.picture().pixels();
    const int64_t c = pixels.dims()[2];
    if (source.dims()[2] != c)
      fail(ErrorCode::bad_format, cat("pictures of ", source.dims()[2], " and of ", c, " channels meet"));
    std::vector<uint8_t> hidden(static_cast<size_t>(w) * static_cast<size_t>(h), 0);
    uint8_t* to = pixels.as_mutable<uint8_t>();
    for (size_t i = 0; i < taken.size(); ++i)
      over_object(from.at("boxes"), from.find("masks"), static_cast<int64_t>(i), w, h, [&](int x, int y) {
        const int64_t at = int64_t{y} * w + x;
        std::copy_n(source.as<uint8_t>() + at * c, c, to + at * c);
        hidden[static_cast<size_t>(at)] = 1;
      });
    std::vector<int64_t> kept;
    const int64_t objects = s.at("boxes").dims()[0];
    uint8_t* masks = s.find("masks") ? s.at("masks").as_mutable<uint8_t>() : nullptr;
    for (int64_t i = 0; i < objects; ++i) {
      int64_t all = 0, left = 0;
      over_object(s.at("boxes"), s.find("masks"), i, w, h, [&](int x, int y) {
        const int64_t at = int64_t{y} * w + x;
        ++all;
        if (!hidden[static_cast<size_t>(at)])
          ++left;
        else if (masks)
          masks[i * w * h + at] = 0;
      });
      if (left > 0 && static_cast<double>(left) >= visible * static_cast<double>(all)) kept.push_back(i);
    }
    if (std::ssize(kept) != objects) keep_objects(s, kept);
    append_objects(s, from);
    s.picture().replace(std::move(pixels));
  };
}

}  // namespace

std::vector<StageKind> join_stage_kinds() {
  using T = OptionType;
  return {
      {{"mosaic",
        "the picture and three others meet in one, each scaled and cut to its quarter; boxes, masks and key "
        "points "
        "of all four",
        {{"size", T::numbers, {}, "one number, or [height, width]", 2, 1 << 16},
         {"centre", T::numbers, std::vector<double>{0.25, 0.75},
          "[low, high] where the four meet, as a share of the sides", 0, 1},
         filter_option(),
         antialias_option(),
         chance_option("a distribution { coin = p }: without luck the picture alone takes the whole size")}},
       {},
       {},
       make_mosaic},
      {{"copy_paste",
        "objects of another picture (their masks, else their boxes) are put on this one",
        {{"share", T::number, 0.5, "chance of each object of the other picture", 0, 1},
         {"visible", T::number, 0.1, "objects with less than this share left in sight go", 0, 1},
         chance_option()}},
       {},
       {},
       make_copy_paste}};
}

}  // namespace pelton::data
