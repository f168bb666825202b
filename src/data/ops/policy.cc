// SPDX-License-Identifier: Apache-2.0
// RandAugment and TrivialAugment: operations drawn from one list, each with a magnitude in 0..1.
#include <cmath>
#include <numbers>

#include "data/ops/colour.h"
#include "data/ops/stage.h"

namespace pelton::data {
namespace {

struct Operation {
  const char* name;
  bool is_signed;  // the magnitude may point both ways
  void (*apply)(LazyImage& p, double m);
};

void shear_or_move(LazyImage& p, double kx, double ky, double mx, double my) {
  const double w = p.width(), h = p.height();
  // Output -> input about the centre.
  const Matrix from = {1, 0, -w / 2, 0, 1, -h / 2, 0, 0, 1}, change = {1, kx, mx * w, ky, 1, my * h, 0, 0, 1},
               back = {1, 0, w / 2, 0, 1, h / 2, 0, 0, 1};
  p.warp(multiply(back, multiply(change, from)), p.width(), p.height(), Filter::linear);
}

void turn(LazyImage& p, double degrees) {
  const double t = degrees * std::numbers::pi / 180, w = p.width(), h = p.height();
  const Matrix from = {1, 0, -w / 2, 0, 1, -h / 2, 0, 0, 1},
               rotate = {std::cos(t), -std::sin(t), 0, std::sin(t), std::cos(t), 0, 0, 0, 1};
  const Matrix back = {1, 0, w / 2, 0, 1, h / 2, 0, 0, 1};
  p.warp(multiply(back, multiply(rotate, from)), p.width(), p.height(), Filter::linear);
}

constexpr Operation kOperations[] = {
    {"identity", false, [](LazyImage&, double) {}},
    {"shear_x", true, [](LazyImage& p, double m) { shear_or_move(p, 0.3 * m, 0, 0, 0); }},
    {"shear_y", true, [](LazyImage& p, double m) { shear_or_move(p, 0, 0.3 * m, 0, 0); }},
    {"translate_x", true, [](LazyImage& p, double m) { shear_or_move(p, 0, 0, 0.45 * m, 0); }},
    {"translate_y", true, [](LazyImage& p, double m) { shear_or_move(p, 0, 0, 0, 0.45 * m); }},
    {"rotate", true, [](LazyImage& p, double m) { turn(p, 30 * m); }},
    {"brightness", true, [](LazyImage& p, double m) { p.recolour(brightness_matrix(1 + 0.9 * m)); }},
    {"saturation", true, [](LazyImage& p, double m) { p.recolour(saturation_matrix(1 + 0.9 * m)); }},
    {"contrast", true, [](LazyImage& p, double m) { p.recolour(contrast_matrix(1 + 0.9 * m)); }},
    {"sharpness", true, [](LazyImage& p, double m) { p.replace(sharpened(p.pixels(), 1 + 0.9 * m)); }},
    {"posterize", false,
     [](LazyImage& p, double m) {
       p.replace(posterized(p.pixels(), 8 - static_cast<int>(std::lrint(4 * m))));
     }},
    {"solarize", false,
     [](LazyImage& p, double m) { p.replace(solarized(p.pixels(), static_cast<int>(255 - 255 * m))); }},
    {"autocontrast", false, [](LazyImage& p, double) { p.replace(autocontrasted(p.pixels())); }},
    {"equalize", false, [](LazyImage& p, double) { p.replace(equalized(p.pixels())); }}};

void one(Sample& s, const Draw& d, uint32_t slot, double magnitude) {
  const Operation& op = kOperations[d.below(slot, std::size(kOperations))];
  op.apply(s.picture(), op.is_signed && d.coin(slot + 1, 0.5) ? -magnitude : magnitude);
}

}  // namespace

std::vector<StageKind> policy_stage_kinds() {
  using T = OptionType;
  return {{{"rand_augment",
            "some random operations of one magnitude (boxes and masks do not follow)",
            {{"count", T::integer, 2, "operations", 1, 16},
             {"magnitude", T::number, 9, "0..30", 0, 30, {}, true},
             fill_option()}},
           [](const Args& a, Match) -> StageFn {
             return [n = static_cast<uint32_t>(a.integer("count")), magnitude = Drawn(a, "magnitude"),
                     fill = fill_from(a)](Sample& s, const Draw& d) {
               s.picture().set_fill(fill);
               for (uint32_t i = 0; i < n; ++i) one(s, d, 64 + 2 * i, magnitude(d) / 30);
             };
           }},
          {{"trivial_augment",
            "one random operation of random magnitude (boxes and masks do not follow)",
            {fill_option()}},
           [](const Args& a, Match) -> StageFn {
             return [fill = fill_from(a)](Sample& s, const Draw& d) {
               s.picture().set_fill(fill);
               one(s, d, 64, d.uniform(66));
             };
           }}};
}

}  // namespace pelton::data
