// SPDX-License-Identifier: Apache-2.0
// Turns and other maps of the plane.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "data/ops/stage.h"

namespace pelton::data {
namespace {

Filter warp_filter(const Args& a) {
  const Filter f = filter_from(a);
  if (f != Filter::nearest && f != Filter::linear && f != Filter::cubic)
    fail(ErrorCode::usage, cat("filter = \"", a.text("filter"), "\" is for resizing only"), a.where(),
         "use nearest, linear or cubic");
  return f;
}

// Output -> input for: shear, then scale, then rotate (degrees, counter-clockwise) about the centre, then
// move.
Matrix placement(int w, int h, double angle, double scale, double shear_x, double shear_y, double move_x,
                 double move_y) {
  const double t = angle * std::numbers::pi / 180, kx = std::tan(shear_x * std::numbers::pi / 180),
               ky = std::tan(shear_y * std::numbers::pi / 180);
  const Matrix rotate = {std::cos(t), std::sin(t), 0, -std::sin(t), std::cos(t), 0, 0, 0, 1};
  const Matrix shear = {scale, scale * kx, 0, scale * ky, scale, 0, 0, 0, 1};
  const Matrix to_centre = {1, 0, -w / 2.0, 0, 1, -h / 2.0, 0, 0, 1},
               back = {1, 0, w / 2.0 + move_x, 0, 1, h / 2.0 + move_y, 0, 0, 1};
  return inverse(multiply(back, multiply(rotate, multiply(shear, to_centre))));
}

StageFn make_rotate(const Args& a, Match) {
  return [angle = Drawn(a, "angle"), filter = warp_filter(a), fill = fill_from(a),
          expand = a.boolean("expand")](Sample& s, const Draw& d) {
    LazyImage& p = s.picture();
    p.set_fill(fill);
    const int w = p.width(), h = p.height();
    const double t = angle(d);
    Matrix m = placement(w, h, t, 1, 0, 0, 0, 0);
    if (!expand) return warp_sample(s, m, w, h, filter);
    const double c = std::abs(std::cos(t * std::numbers::pi / 180)),
                 k = std::abs(std::sin(t * std::numbers::pi / 180));
    const int ow = std::max(1, static_cast<int>(std::ceil(w * c + h * k - 1e-6))),
              oh = std::max(1, static_cast<int>(std::ceil(w * k + h * c - 1e-6)));
    m = multiply(m, {1, 0, (w - ow) / 2.0, 0, 1, (h - oh) / 2.0, 0, 0, 1});
    warp_sample(s, m, ow, oh, filter);
  };
}

StageFn make_affine(const Args& a, Match) {
  return [angle = Drawn(a, "angle"), scale = Drawn(a, "scale"), kx = Drawn(a, "shear_x"),
          ky = Drawn(a, "shear_y"), mx = Drawn(a, "translate_x"), my = Drawn(a, "translate_y"),
          filter = warp_filter(a), fill = fill_from(a)](Sample& s, const Draw& d) {
    LazyImage& p = s.picture();
    p.set_fill(fill);
    const int w = p.width(), h = p.height();
    warp_sample(s, placement(w, h, angle(d), scale(d), kx(d), ky(d), mx(d) * w, my(d) * h), w, h, filter);
  };
}

// The projective map that takes the corners of a w x h picture to `to`.
Matrix corners_to(double w, double h, const std::array<double, 8>& to) {
  const double x[4] = {0, w, w, 0}, y[4] = {0, 0, h, h};
  double m[8][9] = {};
  for (int i = 0; i < 4; ++i) {
    const double u = to[static_cast<size_t>(2 * i)], v = to[static_cast<size_t>(2 * i + 1)];
    const double r0[9] = {x[i], y[i], 1, 0, 0, 0, -u * x[i], -u * y[i], u},
                 r1[9] = {0, 0, 0, x[i], y[i], 1, -v * x[i], -v * y[i], v};
    std::copy_n(r0, 9, m[2 * i]);
    std::copy_n(r1, 9, m[2 * i + 1]);
  }
  for (int c = 0; c < 8; ++c) {  // Gauss-Jordan with partial pivoting
    int best = c;
    for (int r = c; r < 8; ++r)
      if (std::abs(m[r][c]) > std::abs(m[best][c])) best = r;
    if (std::abs(m[best][c]) < 1e-12) fail(ErrorCode::usage, "the four corners lie on a line");
    std::swap_ranges(m[c], m[c] + 9, m[best]);
    for (int r = 0; r < 8; ++r)
      if (const double f = m[r][c] / m[c][c]; r != c)
        for (int k = c; k < 9; ++k) m[r][k] -= f * m[c][k];
  }
  Matrix out{};
  for (size_t i = 0; i < 8; ++i) out[i] = m[i][8] / m[i][i];
  out[8] = 1;
  return out;
}

StageFn make_perspective(const Args& a, Match) {
  return [amount = Drawn(a, "distortion"), filter = warp_filter(a), fill = fill_from(a)](Sample& s,
                                                                                         const Draw& d) {
    LazyImage& p = s.picture();
    p.set_fill(fill);
    const int w = p.width(), h = p.height();
    const double k = amount(d) / 2;
    std::array<double, 8> to{};
    for (uint32_t i = 0; i < 4; ++i) {  // each corner moves inwards by up to k of the side
      const bool right = i == 1 || i == 2, bottom = i >= 2;
      const double dx = d.uniform(64 + 2 * i) * k * w, dy = d.uniform(65 + 2 * i) * k * h;
      to[2 * i] = right ? w - dx : dx;
      to[2 * i + 1] = bottom ? h - dy : dy;
    }
    warp_sample(s, inverse(corners_to(w, h, to)), w, h, filter);
  };
}

}  // namespace

std::vector<StageKind> warp_stage_kinds() {
  using T = OptionType;
  auto random = [](const char* name, Param fallback, const char* doc, double low = kAny,
                   double high = kNone) {
    return OptionSpec{name, T::number, std::move(fallback), doc, low, high, {}, true};
  };
  return {{{"rotate",
            "turns about the centre",
            {random("angle", {}, "degrees, counter-clockwise"),
             {"expand", T::boolean, false, "grow to hold the whole turned picture"},
             filter_option(),
             fill_option()}},
           make_rotate},
          {{"affine",
            "shear, scale, rotate about the centre, and move",
            {random("angle", 0.0, "degrees, counter-clockwise"), random("scale", 1.0, "factor", 1e-3, 1e3),
             random("shear_x", 0.0, "degrees", -80, 80), random("shear_y", 0.0, "degrees", -80, 80),
             random("translate_x", 0.0, "share of the width"),
             random("translate_y", 0.0, "share of the height"), filter_option(), fill_option()}},
           make_affine},
          {{"perspective",
            "moves the corners inwards at random",
            {random("distortion", 0.5, "largest move of a corner, in halves of the side", 0, 0.9),
             filter_option(), fill_option()}},
           make_perspective}};
}

}  // namespace pelton::data
