// SPDX-License-Identifier: Apache-2.0
// Where the pixels of a picture come from. Crops, resizes, flips, pads and quarter turns only edit this
// description; one resample carries all of them out.
#pragma once

#include <array>
#include <cstdint>

#include "data/codec/codec.h"
#include "ir/image/axis.h"

namespace pelton::data {

using ir::Axis;
using ir::Filter;
using ir::Match;

// Row-major 3x3 matrix on (x, y, 1).
using Matrix = std::array<double, 9>;
Matrix identity_matrix();
Matrix multiply(const Matrix& a, const Matrix& b);  // a after b
Matrix inverse(const Matrix& m);                    // usage error when singular
void apply(const Matrix& m, double& x, double& y);

struct Geometry {
  Axis x, y;          // of the source image
  bool swap = false;  // output is transposed: its x follows y
  // The picture lies at (left, top) of an output of out_width x out_height; around it is fill.
  int left = 0, top = 0, out_width = 0, out_height = 0;
  Filter filter = Filter::linear;
  bool antialias = true;

  static Geometry whole(int width, int height);
  Axis& across() { return swap ? y : x; }  // the axis that output x follows
  Axis& down() { return swap ? x : y; }
  const Axis& across() const { return swap ? y : x; }
  const Axis& down() const { return swap ? x : y; }
  bool padded() const { return left != 0 || top != 0 || out_width != across().n || out_height != down().n; }
  bool resized() const { return x.resized || y.resized; }
  bool is_identity(int width, int height) const;

  void crop(Rect r);                   // inside the output
  void resize(int width, int height);  // not while padded
  void mirror_x();
  void mirror_y();
  void transpose();
  void orient(int exif);  // shows a stored picture upright
  void pad(int left, int top, int right, int bottom);
};

}  // namespace pelton::data
