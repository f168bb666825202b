// SPDX-License-Identifier: Apache-2.0
// Sizes of slices and views whose operands are known, symbolically or as numbers.
#include <algorithm>

#include "ir/ops/dynamic_shape.h"

namespace pelton::ir {

std::optional<SliceDims> normal_slice(const Dim& start, const Dim& end, int64_t step, const Dim& extent,
                                      const SymbolRanges& ranges) {
  if (step == INT64_MIN) return std::nullopt;  // has no absolute value
  auto bounded = [&](const Dim& d, const Dim& low, const Dim& high) -> std::optional<Dim> {
    Range r = d.range(ranges);
    Dim from_front = d;
    if (r.max < 0)
      from_front = extent + d;
    else if (r.min < 0)
      return std::nullopt;
    if (at_most(from_front, low, ranges) == Tri::yes) return low;
    if (at_most(high, from_front, ranges) == Tri::yes) return high;
    if (at_most(low, from_front, ranges) != Tri::yes) from_front = Dim::max(low, from_front);
    return at_most(from_front, high, ranges) == Tri::yes ? from_front : Dim::min(from_front, high);
  };
  auto first = step > 0 ? bounded(start, 0, extent) : bounded(start, -1, extent - 1);
  auto last = step > 0 ? bounded(end, 0, extent) : bounded(end, -1, extent - 1);
  if (!first || !last) return std::nullopt;
  Dim span = step > 0 ? *last - *first : *first - *last;
  Dim size = Dim::ceil_div(span, step > 0 ? step : -step);
  if (at_most(0, span, ranges) != Tri::yes) size = Dim::max(0, size);
  return SliceDims{*first, size};
}

std::optional<Shape> reshape_target(const Shape& from, const Contents& to, bool allow_zero,
                                    const SymbolRanges& ranges) {
  Shape out;
  size_t open = SIZE_MAX;
  for (size_t d = 0; d < to.size(); ++d) {
    Dim size = to[d];
    if (size == Dim(-1)) {
      open = d;
      size = 1;
    } else if (size == Dim(0) && !allow_zero && d < from.size()) {
      size = from[d];
    } else if (!size.is_const() && size.range(ranges).min < 0) {
      return std::nullopt;
    }
    out.push_back(size);
  }
  if (open == SIZE_MAX) return out;
  // Sizes that stand on both sides cancel, so that the rest divides symbolically.
  Shape left = from, right = out;
  for (size_t d = 0; d < right.size();) {
    auto twin = std::find(left.begin(), left.end(), right[d]);
    if (!right[d].is_const() && twin != left.end() && right[d].range(ranges).min > 0) {
      left.erase(twin);
      right.erase(right.begin() + static_cast<std::ptrdiff_t>(d));
    } else {
      ++d;
    }
  }
  Dim rest = element_count(right);
  out[open] = rest == Dim(1)   ? element_count(left)
              : rest == Dim(0) ? Dim(0)
                               : Dim::floor_div(element_count(left), rest);
  return out;
}

}  // namespace pelton::ir
