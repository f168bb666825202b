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
  void (*apply)(Sample& s, double m);
};

void shear_or_move(Sample& s, double kx, double ky, double mx, double my) {
  const int width = s.picture().width(), height = s.picture().height();
  const double w = width, h = height;
  // Output -> input about the centre.
  const Matrix from = {1, 0, -w / 2, 0, 1, -h / 2, 0, 0, 1}, change = {1, kx, mx * w, ky, 1, my * h, 0, 0, 1},
               back = {1, 0, w / 2, 0, 1, h / 2, 0, 0, 1};
  warp_sample(s, multiply(back, multiply(change, from)), width, height, Filter::linear);
}

void turn(Sample& s, double degrees) {
  const int width = s.picture().width(), height = s.picture().height();
  const double t = degrees * std::numbers::pi / 180, w = width, h = height;
  const Matrix from = {1, 0, -w / 2, 0, 1, -h / 2, 0, 0, 1},
               rotate = {std::cos(t), -std::sin(t), 0, std::sin(t), std::cos(t), 0, 0, 0, 1};
  const Matrix back = {1, 0, w / 2, 0, 1, h / 2, 0, 0, 1};
  warp_sample(s, multiply(back, multiply(rotate, from)), width, height, Filter::linear);
}

template <class F>
void on_pixels(Sample& s, F f) {
  s.picture().replace(f(s.picture().pixels()));
}

constexpr Operation kOperations[] = {
    {"identity", false, [](Sample&, double) {}},
    {"shear_x", true, [](Sample& s, double m) { shear_or_move(s, 0.3 * m, 0, 0, 0); }},
    {"shear_y", true, [](Sample& s, double m) { shear_or_move(s, 0, 0.3 * m, 0, 0); }},
    {"translate_x", true, [](Sample& s, double m) { shear_or_move(s, 0, 0, 0.45 * m, 0); }},
    {"translate_y", true, [](Sample& s, double m) { shear_or_move(s, 0, 0, 0, 0.45 * m); }},
    {"rotate", true, [](Sample& s, double m) { turn(s, 30 * m); }},
    {"brightness", true, [](Sample& s, double m) { s.picture().recolour(brightness_matrix(1 + 0.9 * m)); }},
    {"saturation", true, [](Sample& s, double m) { s.picture().recolour(saturation_matrix(1 + 0.9 * m)); }},
    {"contrast", true, [](Sample& s, double m) { s.picture().recolour(contrast_matrix(1 + 0.9 * m)); }},
    {"sharpness", true,
     [](Sample& s, double m) { on_pixels(s, [m](const Tensor& p) { return sharpened(p, 1 + 0.9 * m); }); }},
    {"posterize", false,
     [](Sample& s, double m) {
       on_pixels(s, [m](const Tensor& p) { return posterized(p, 8 - static_cast<int>(std::lrint(4 * m))); });
     }},
    {"solarize", false,
     [](Sample& s, double m) {
       on_pixels(s, [m](const Tensor& p) { return solarized(p, static_cast<int>(255 - 255 * m)); });
     }},
    {"autocontrast", false, [](Sample& s, double) { on_pixels(s, autocontrasted); }},
    {"equalize", false, [](Sample& s, double) { on_pixels(s, equalized); }}};

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

void apply_step(Sample& s, const Step& step, const Draw& d, uint32_t slot) {
  if (!d.coin(slot, step.chance)) return;
  if (step.op == "invert") return s.picture().recolour(invert_matrix());
  const auto* op =
      std::ranges::find(kOperations, step.op, [](const Operation& o) { return std::string_view(o.name); });
  PELTON_CHECK(op != std::end(kOperations), step.op);
  const double m = step.magnitude / 9.0;
  op->apply(s, op->is_signed && d.coin(slot + 1, 0.5) ? -m : m);
}

void one(Sample& s, const Draw& d, uint32_t slot, double magnitude) {
  const Operation& op = kOperations[d.below(slot, std::size(kOperations))];
  op.apply(s, op.is_signed && d.coin(slot + 1, 0.5) ? -magnitude : magnitude);
}

}  // namespace

std::vector<StageKind> policy_stage_kinds() {
  using T = OptionType;
  return {{{"rand_augment",
            "some random operations of one magnitude",
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
          {{"auto_augment", "the ImageNet policy of AutoAugment", {fill_option()}},
           [](const Args& a, Match) -> StageFn {
             return [fill = fill_from(a)](Sample& s, const Draw& d) {
               s.picture().set_fill(fill);
               const auto& pair = kImageNet[d.below(64, std::ssize(kImageNet))];
               for (uint32_t i = 0; i < 2; ++i) apply_step(s, pair[i], d, 65 + 2 * i);
             };
           }},
          {{"trivial_augment", "one random operation of random magnitude", {fill_option()}},
           [](const Args& a, Match) -> StageFn {
             return [fill = fill_from(a)](Sample& s, const Draw& d) {
               s.picture().set_fill(fill);
               one(s, d, 64, d.uniform(66));
             };
           }}};
}

}  // namespace pelton::data
