// SPDX-License-Identifier: Apache-2.0
#include "ir/image/filter_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace pelton::ir {
namespace {

double sinc(double x) {
  if (x == 0) return 1;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

}  // namespace

double filter_support(Filter f) {
  switch (f) {
    case Filter::nearest:
    case Filter::box:
      return 0.5;
    case Filter::linear:
    case Filter::hamming:
      return 1;
    case Filter::cubic:
      return 2;
    case Filter::lanczos:
      return 3;
  }
  return 1;
}

double filter_value(Filter f, double x) {
  constexpr double a = -0.5;
  switch (f) {
    case Filter::nearest:
    case Filter::box:
      return x > -0.5 && x <= 0.5 ? 1 : 0;
    case Filter::linear:
      x = std::abs(x);
      return x < 1 ? 1 - x : 0;
    case Filter::hamming:
      x = std::abs(x);
      if (x == 0) return 1;
      if (x >= 1) return 0;
      x *= std::numbers::pi;
      return std::sin(x) / x * (0.54 + 0.46 * std::cos(x));
    case Filter::cubic:
      x = std::abs(x);
      if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
      if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
      return 0;
    case Filter::lanczos:
      return x > -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
  }
  return 0;
}

int FilterTable::low() const {
  return first.empty() ? 0 : *std::ranges::min_element(first);
}

int FilterTable::high() const {
  int high = 0;
  for (size_t i = 0; i < first.size(); ++i) high = std::max(high, first[i] + count[i]);
  return high;
}

FilterTable filter_table(const Axis& axis, Filter filter, bool antialias) {
  return filter_table(axis, filter, antialias ? std::max(axis.scale, 1.0) : 1.0);
}

FilterTable filter_table(const Axis& axis, Filter filter, double widen) {
  FilterTable t;
  const size_t n = static_cast<size_t>(axis.n);
  t.first.resize(n);
  t.count.resize(n);
  if (!axis.resized || filter == Filter::nearest) {
    t.taps = 1;
    t.weights.assign(n, 1);
    t.count.assign(n, 1);
    for (int i = 0; i < axis.n; ++i)
      t.first[static_cast<size_t>(i)] =
          axis.low +
          std::clamp(static_cast<int>(std::floor(axis.position(i, axis.low))), 0, axis.high - axis.low - 1);
    return t;
  }
  const double support = filter_support(filter) * widen, step = 1 / widen;
  t.taps = static_cast<int>(std::ceil(support)) * 2 + 1;
  t.weights.assign(n * static_cast<size_t>(t.taps), 0);
  for (int i = 0; i < axis.n; ++i) {
    // Positions count from the first usable pixel, so that a crop resizes exactly like a picture of its own.
    const double centre = axis.position(i, axis.low);
    const int begin = std::max(static_cast<int>(centre - support + 0.5), 0);
    const int end = std::min(static_cast<int>(centre + support + 0.5), axis.high - axis.low);
    double* w = t.weights.data() + static_cast<size_t>(i) * static_cast<size_t>(t.taps);
    double sum = 0;
    for (int k = begin; k < end; ++k) sum += w[k - begin] = filter_value(filter, (k - centre + 0.5) * step);
    if (sum != 0)
      for (int k = begin; k < end; ++k) w[k - begin] /= sum;
    t.first[static_cast<size_t>(i)] = axis.low + begin;
    t.count[static_cast<size_t>(i)] = std::max(0, end - begin);
    if (end <= begin || sum == 0) {  // no pixel inside the support: the nearest one
      t.first[static_cast<size_t>(i)] =
          axis.low + std::clamp(static_cast<int>(std::floor(centre)), 0, axis.high - axis.low - 1);
      t.count[static_cast<size_t>(i)] = 1;
      w[0] = 1;
    }
  }
  return t;
}

}  // namespace pelton::ir
