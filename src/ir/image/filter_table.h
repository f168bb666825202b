// SPDX-License-Identifier: Apache-2.0
// The taps of a separable resample along one axis.
#pragma once

#include <vector>

#include "ir/image/axis.h"

namespace pelton::ir {

struct FilterTable {
  int taps = 0;                   // stride of `weights`; entries past `count` are 0
  std::vector<int> first, count;  // by output index: the source pixels first .. first + count - 1
  std::vector<double> weights;    // [n, taps], each row sums to 1
  int low() const;                // smallest and one past the largest source pixel used
  int high() const;
};

// Coefficient of a filter at distance x (in filter units) and its half width. cubic: a = -0.5.
double filter_value(Filter f, double x);
double filter_support(Filter f);

// With antialias the filter widens by the scale when an axis shrinks.
FilterTable filter_table(const Axis& axis, Filter filter, bool antialias);
// The same with the filter `widen` times as wide as for enlarging.
FilterTable filter_table(const Axis& axis, Filter filter, double widen);

}  // namespace pelton::ir
