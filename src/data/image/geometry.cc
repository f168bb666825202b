// SPDX-License-Identifier: Apache-2.0
#include "data/image/geometry.h"

#include <algorithm>
#include <cmath>

namespace pelton::data {

Matrix identity_matrix() {
  return {1, 0, 0, 0, 1, 0, 0, 0, 1};
}

Matrix multiply(const Matrix& a, const Matrix& b) {
  Matrix out{};
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 3; ++j)
      for (size_t k = 0; k < 3; ++k) out[3 * i + j] += a[3 * i + k] * b[3 * k + j];
  return out;
}

Matrix inverse(const Matrix& m) {
  const double c0 = m[4] * m[8] - m[5] * m[7], c1 = m[5] * m[6] - m[3] * m[8], c2 = m[3] * m[7] - m[4] * m[6];
  const double det = m[0] * c0 + m[1] * c1 + m[2] * c2;
  if (!(std::abs(det) > 1e-12))
    fail(ErrorCode::usage, "the transform flattens the picture (its matrix has no inverse)");
  Matrix r = {c0, m[2] * m[7] - m[1] * m[8], m[1] * m[5] - m[2] * m[4],
              c1, m[0] * m[8] - m[2] * m[6], m[2] * m[3] - m[0] * m[5],
              c2, m[1] * m[6] - m[0] * m[7], m[0] * m[4] - m[1] * m[3]};
  for (double& v : r) v /= det;
  return r;
}

void apply(const Matrix& m, double& x, double& y) {
  const double w = m[6] * x + m[7] * y + m[8];
  const double u = (m[0] * x + m[1] * y + m[2]) / w;
  y = (m[3] * x + m[4] * y + m[5]) / w;
  x = u;
}

Geometry Geometry::whole(int width, int height) {
  Geometry g;
  g.x = Axis::whole(width);
  g.y = Axis::whole(height);
  g.out_width = width;
  g.out_height = height;
  return g;
}

bool Geometry::is_identity(int width, int height) const {
  auto plain = [](const Axis& a, int size) { return !a.resized && !a.flip && a.offset == 0 && a.n == size; };
  return !swap && !padded() && plain(x, width) && plain(y, height);
}

void Geometry::crop(Rect r) {
  auto part = [](Axis& a, int& at, int r0, int r1) {
    const int begin = std::clamp(r0, at, at + a.n), end = std::clamp(r1, begin, at + a.n);
    a.crop(begin - at, end - begin);
    at = begin - r0;
  };
  part(across(), left, r.x0, r.x1);
  part(down(), top, r.y0, r.y1);
  out_width = r.width();
  out_height = r.height();
}

void Geometry::resize(int width, int height) {
  PELTON_CHECK(!padded(), "resize of a padded picture");
  across().resize(width);
  down().resize(height);
  out_width = width;
  out_height = height;
}

void Geometry::mirror_x() {
  across().mirror();
  left = out_width - left - across().n;
}

void Geometry::mirror_y() {
  down().mirror();
  top = out_height - top - down().n;
}

void Geometry::transpose() {
  swap = !swap;
  std::swap(left, top);
  std::swap(out_width, out_height);
}

void Geometry::orient(int exif) {
  if (exif >= 5) transpose();
  if (exif == 2 || exif == 3 || exif == 6 || exif == 7) mirror_x();
  if (exif == 3 || exif == 4 || exif == 7 || exif == 8) mirror_y();
}

void Geometry::pad(int l, int t, int r, int b) {
  left += l;
  top += t;
  out_width += l + r;
  out_height += t + b;
}

}  // namespace pelton::data
