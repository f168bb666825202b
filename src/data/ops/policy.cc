// SPDX-License-Identifier: Apache-2.0
// RandAugment and TrivialAugment: operations drawn from one list, each with a magnitude in 0..1. AutoAugment:
// one of 25 pairs, found by search on ImageNet, each operation with its own chance and magnitude.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

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

struct Step {
  std::string_view op;
  double chance;
  int magnitude;  // in ninths
};
constexpr Step kImageNet[][2] = {
    {{"posterize", 0.4, 8}, {"rotate", 0.6, 9}},    {{"solarize", 0.6, 5}, {"autocontrast", 0.6, 0}},
    {{"equalize", 0.8, 0}, {"equalize", 0.6, 0}},   {{"posterize", 0.6, 7}, {"posterize", 0.6, 6}},
    {{"equalize", 0.4, 0}, {"solarize", 0.2, 4}},   {{"equalize", 0.4, 0}, {"rotate", 0.8, 8}},
    {{"solarize", 0.6, 3}, {"equalize", 0.6, 0}},   {{"posterize", 0.8, 5}, {"equalize", 1, 0}},
    {{"rotate", 0.2, 3}, {"solarize", 0.6, 8}},     {{"equalize", 0.6, 0}, {"posterize", 0.4, 6}},
    {{"rotate", 0.8, 8}, {"saturation", 0.4, 0}},   {{"rotate", 0.4, 9}, {"equalize", 0.6, 0}},
    {{"equalize", 0, 0}, {"equalize", 0.8, 0}},     {{"invert", 0.6, 0}, {"equalize", 1, 0}},
    {{"saturation", 0.6, 4}, {"contrast", 1, 8}},   {{"rotate", 0.8, 8}, {"saturation", 1, 2}},
    {{"saturation", 0.8, 8}, {"solarize", 0.8, 7}}, {{"sharpness", 0.4, 7}, {"invert", 0.6, 0}},
    {{"shear_x", 0.6, 5}, {"equalize", 1, 0}},      {{"saturation", 0.4, 0}, {"equalize", 0.6, 0}},
    {{"equalize", 0.4, 0}, {"solarize", 0.2, 4}},   {{"solarize", 0.6, 5}, {"autocontrast", 0.6, 0}},
    {{"invert", 0.6, 0}, {"equalize", 1, 0}},       {{"saturation", 0.6, 4}, {"contrast", 1, 8}},
    {{"equalize", 0.8, 0}, {"equalize", 0.6, 0}}};

void apply_step(LazyImage& p, const Step& step, const Draw& d, uint32_t slot) {
  if (!d.coin(slot, step.chance)) return;
  if (step.op == "invert") return p.recolour(invert_matrix());
  const auto* op =
      std::ranges::find(kOperations, step.op, [](const Operation& o) { return std::string_view(o.name); });
  PELTON_CHECK(op != std::end(kOperations), step.op);
  const double m = step.magnitude / 9.0;
  op->apply(p, op->is_signed && d.coin(slot + 1, 0.5) ? -m : m);
}

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
          {{"auto_augment",
            "the ImageNet policy of AutoAugment (boxes and masks do not follow)",
            {fill_option()}},
           [](const Args& a, Match) -> StageFn {
             return [fill = fill_from(a)](Sample& s, const Draw& d) {
               s.picture().set_fill(fill);
               const auto& pair = kImageNet[d.below(64, std::ssize(kImageNet))];
               for (uint32_t i = 0; i < 2; ++i) apply_step(s.picture(), pair[i], d, 65 + 2 * i);
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
