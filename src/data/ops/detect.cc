// SPDX-License-Identifier: Apache-2.0
// Stages for detectors: the crop of SSD training, and boxes as offsets from anchors.
#include <algorithm>
#include <cmath>

#include "data/ops/stage.h"

namespace pelton::data {
namespace {

// Intersection over union of two boxes (x0, y0, x1, y1).
template <class A, class B>
double overlap(const A* box, const B* c) {
  const double w = std::min<double>(box[2], c[2]) - std::max<double>(box[0], c[0]),
               h = std::min<double>(box[3], c[3]) - std::max<double>(box[1], c[1]);
  if (w <= 0 || h <= 0) return 0;
  const double both = w * h, a = static_cast<double>(box[2] - box[0]) * static_cast<double>(box[3] - box[1]),
               b = static_cast<double>(c[2] - c[0]) * static_cast<double>(c[3] - c[1]);
  return both / (a + b - both);
}

// The crop of SSD training: a part that overlaps some box by a drawn minimum; boxes stay when their centre
// does.
StageFn make_ssd_crop(const Args&, Match) {
  return [](Sample& s, const Draw& d) {
    const int w = s.picture().width(), h = s.picture().height();
    check_targets(s);
    Tensor boxes = s.at("boxes");
    constexpr double minimum[] = {-1, 0, 0.1, 0.3, 0.5, 0.7, 0.9};
    for (uint32_t round = 0; round < 50; ++round) {
      const double need = minimum[d.below(64 + round * 8, 7)];
      if (need < 0) return;  // the whole picture
      const uint32_t slot = 65 + round * 8;
      const int cw = static_cast<int>(w * d.uniform(slot, 0.3, 1)),
                ch = static_cast<int>(h * d.uniform(slot + 1, 0.3, 1));
      if (cw < 1 || ch < 1 || cw > 2 * ch || ch > 2 * cw) continue;
      const int x = static_cast<int>(d.below(slot + 2, w - cw + 1)),
                y = static_cast<int>(d.below(slot + 3, h - ch + 1));
      const double c[4] = {static_cast<double>(x), static_cast<double>(y), static_cast<double>(x + cw),
                           static_cast<double>(y + ch)};
      bool good = false;
      Tensor kept = boxes.clone();
      float* b = kept.as_mutable<float>();
      for (int64_t i = 0; i < kept.dims()[0]; ++i, b += 4) {
        const double mx = (b[0] + b[2]) / 2, my = (b[1] + b[3]) / 2;
        const bool inside = mx > c[0] && my > c[1] && mx < c[2] && my < c[3];
        good |= inside && overlap(b, c) >= need;
        if (!inside) std::fill_n(b, 4, -1.f);  // falls outside, so move_targets drops it
      }
      if (!good) continue;
      s.set("boxes", std::move(kept));
      return crop_sample(s, {x, y, x + cw, y + ch});
    }
  };
}

// The anchors of an SSD network, as (centre x, centre y, width, height) in shares of the picture: by map,
// row, column; at each place a square of the map's scale, one between that and the next map's, and for each
// ratio 2 .. the map's own a wide and a tall one.
std::vector<double> ssd_anchors(const Args& a) {
  const std::vector<double>&maps = a.numbers("maps"), &scales = a.numbers("scales"),
        &ratios = a.numbers("ratios");
  if (scales.size() != maps.size() + 1 || ratios.size() != maps.size())
    fail(ErrorCode::usage,
         cat("'maps' has ", maps.size(),
             " numbers, so 'ratios' needs as many and 'scales' one more; they have ", ratios.size(), " and ",
             scales.size()),
         a.where());
  const double picture = a.number("picture");
  std::vector<double> out;
  for (size_t m = 0; m < maps.size(); ++m) {
    const double own = scales[m] / picture, between = std::sqrt(own * scales[m + 1] / picture);
    std::vector<std::pair<double, double>> sizes = {{own, own}, {between, between}};
    for (int r = 2; r <= static_cast<int>(ratios[m]); ++r) {
      const double k = std::sqrt(static_cast<double>(r));
      sizes.emplace_back(own * k, own / k);
      sizes.emplace_back(own / k, own * k);
    }
    for (int y = 0; y < static_cast<int>(maps[m]); ++y)
      for (int x = 0; x < static_cast<int>(maps[m]); ++x)
        for (auto [w, h] : sizes) out.insert(out.end(), {(x + 0.5) / maps[m], (y + 0.5) / maps[m], w, h});
  }
  for (double& v : out) v = std::clamp(v, 0.0, 1.0);
  return out;
}

// Each anchor takes the box that it overlaps most, if that is more than `criterion`; and each box its best
// anchor in any case. Targets are offsets in units of the anchor, over `std`.
StageFn make_box_encoder(const Args& a, Match) {
  std::vector<double> anchors;
  if (a.has("anchors")) {
    anchors = a.numbers("anchors");
    if (anchors.size() % 4 || anchors.empty())
      fail(ErrorCode::usage, cat("'anchors' has ", anchors.size(), " numbers, not four an anchor"),
           a.where());
    for (size_t i = 0; i < anchors.size(); i += 4) {  // corners to centre and size
      const double x0 = anchors[i], y0 = anchors[i + 1], w = anchors[i + 2] - x0, h = anchors[i + 3] - y0;
      if (!(w > 0 && h > 0))
        fail(ErrorCode::usage, cat("anchor ", i / 4, " is empty"), a.where(),
             "write x0, y0, x1, y1 in shares");
      anchors[i] = x0 + w / 2, anchors[i + 1] = y0 + h / 2, anchors[i + 2] = w, anchors[i + 3] = h;
    }
  } else {
    anchors = ssd_anchors(a);
  }
  const auto std = a.numbers("std");
  if (std.size() != 4 || std::ranges::any_of(std, [](double v) { return !(v > 0); }))
    fail(ErrorCode::usage, "'std' is four positive numbers: x, y, width, height", a.where());
  return [anchors, std, criterion = a.number("criterion"), offsets = a.boolean("offsets")](Sample& s,
                                                                                           const Draw&) {
    const int64_t n = std::ssize(anchors) / 4;
    check_targets(s);
    const Tensor &boxes = s.at("boxes"), &labels = s.at("box_labels");
    const int64_t objects = boxes.dims()[0];
    const double w = s.picture().width(), h = s.picture().height();
    std::vector<double> shares;  // of the boxes' corners
    for (int64_t i = 0; i < objects * 4; ++i)
      shares.push_back(static_cast<double>(boxes.as<float>()[i]) / (i % 2 ? h : w));
    std::vector<int64_t> match(static_cast<size_t>(n), -1), best(static_cast<size_t>(objects), 0);
    std::vector<double> reached(static_cast<size_t>(objects), -1);
    for (int64_t k = 0; k < n; ++k) {
      const double* q = anchors.data() + 4 * k;
      const double corners[4] = {q[0] - q[2] / 2, q[1] - q[3] / 2, q[0] + q[2] / 2, q[1] + q[3] / 2};
      double most = criterion;
      for (int64_t i = 0; i < objects; ++i) {
        const double o = overlap(shares.data() + 4 * i, corners);
        if (o > most) most = o, match[static_cast<size_t>(k)] = i;
        if (o > reached[static_cast<size_t>(i)])
          reached[static_cast<size_t>(i)] = o, best[static_cast<size_t>(i)] = k;
      }
    }
    for (int64_t i = 0; i < objects; ++i) match[static_cast<size_t>(best[static_cast<size_t>(i)])] = i;
    Tensor encoded(DType::f32, {n, 4}), classes = Tensor::zeros(DType::i64, {n});
    float* out = encoded.as_mutable<float>();
    for (int64_t k = 0; k < n; ++k, out += 4) {
      const double* q = anchors.data() + 4 * k;
      const int64_t i = match[static_cast<size_t>(k)];
      double x = q[0], y = q[1], bw = q[2], bh = q[3];
      if (i >= 0) {
        const double* b = shares.data() + 4 * i;
        x = (b[0] + b[2]) / 2, y = (b[1] + b[3]) / 2, bw = b[2] - b[0], bh = b[3] - b[1];
        classes.as_mutable<int64_t>()[k] = labels.get_int(i) + 1;
      }
      const double place[4] = {x, y, bw, bh};
      const double offset[4] = {(x - q[0]) / q[2], (y - q[1]) / q[3], std::log(bw / q[2]),
                                std::log(bh / q[3])};
      for (size_t j = 0; j < 4; ++j) out[j] = static_cast<float>(offsets ? offset[j] / std[j] : place[j]);
    }
    s.set("anchor_boxes", std::move(encoded));
    s.set("anchor_labels", std::move(classes));
  };
}

}  // namespace

std::vector<StageKind> detect_stage_kinds() {
  using T = OptionType;
  using Numbers = std::vector<double>;
  return {
      {{"ssd_crop", "a random part that keeps enough of some box", {}}, make_ssd_crop},
      {{"box_encoder",
        "boxes and box_labels become targets of anchors: anchor_boxes f32 [a, 4], anchor_labels i64 [a] (0: "
        "background, else the label + 1)",
        {{"anchors",
          T::numbers,
          {},
          "x0, y0, x1, y1 of each in shares of the picture, instead of those below",
          kAny,
          kNone,
          {},
          false,
          true},
         {"picture", T::number, 300, "the side that 'scales' counts in", 1},
         {"maps", T::numbers, Numbers{38, 19, 10, 5, 3, 1}, "sides of the feature maps", 1, 1024},
         {"scales", T::numbers, Numbers{21, 45, 99, 153, 207, 261, 315},
          "sides of the anchors of each map, and one "
          "more",
          0},
         {"ratios", T::numbers, Numbers{2, 3, 3, 3, 2, 2}, "largest width over height of each map", 1, 8},
         {"criterion", T::number, 0.5, "smallest overlap (intersection over union)", 0, 1},
         {"offsets", T::boolean, true,
          "offsets from the anchors; false: centre x, y, width and height, in shares"},
         {"std", T::numbers, Numbers{0.1, 0.1, 0.2, 0.2}, "offsets are over these: x, y, width, height"}}},
       make_box_encoder}};
}

}  // namespace pelton::data
