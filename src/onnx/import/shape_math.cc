// SPDX-License-Identifier: Apache-2.0
#include "onnx/import/shape_math.h"

#include <algorithm>

namespace pelton::onnx {

bool surely_negative(const Dim& d, const SymbolRanges& ranges) {
  return d.range(ranges).max < 0;
}
bool surely_not_negative(const Dim& d, const SymbolRanges& ranges) {
  return d.range(ranges).min >= 0;
}

Dim least(const Dim& a, const Dim& b, const SymbolRanges& ranges) {
  if (at_most(a, b, ranges) == Tri::yes) return a;
  if (at_most(b, a, ranges) == Tri::yes) return b;
  return Dim::min(a, b);
}
Dim greatest(const Dim& a, const Dim& b, const SymbolRanges& ranges) {
  if (at_most(a, b, ranges) == Tri::yes) return b;
  if (at_most(b, a, ranges) == Tri::yes) return a;
  return Dim::max(a, b);
}

namespace {

// Bounds this large mean "to the end" and would overflow in arithmetic.
constexpr int64_t kFar = int64_t{1} << 40;

// A bound of Slice cut to [low, high]; none if its sign depends on the symbols.
std::optional<Dim> cut(const Dim& v, const Dim& size, const Dim& low, const Dim& high,
                       const SymbolRanges& ranges) {
  if (v.is_const() && v.value() > kFar) return high;
  if (v.is_const() && v.value() < -kFar) return low;
  if (surely_not_negative(v, ranges)) return greatest(least(v, high, ranges), low, ranges);
  if (surely_negative(v, ranges)) return greatest(least(v + size, high, ranges), low, ranges);
  return {};
}

}  // namespace

std::optional<SliceRange> slice_range(const Dim& size, const Dim& start, const Dim& end, int64_t step,
                                      const SymbolRanges& ranges) {
  if (step == INT64_MIN) return {};
  // Forwards both ends are cut to [0, size], backwards to [-1, size - 1].
  Dim low = step > 0 ? Dim(0) : Dim(-1), high = step > 0 ? size : size - 1;
  auto from = cut(start, size, low, high, ranges), to = cut(end, size, low, high, ranges);
  if (!from || !to) return {};
  Dim first = *from, last = *to;
  Dim span = step > 0 ? last - first : first - last;
  Dim count = greatest(Dim::ceil_div(span, step > 0 ? step : -step), 0, ranges);
  return SliceRange{count == Dim(0) ? Dim(0) : first, count};
}

std::optional<Shape> reshape_target(const Shape& from, const Shape& request, bool allow_zero,
                                    const SymbolRanges& ranges) {
  Shape out;
  std::optional<size_t> rest;
  for (size_t i = 0; i < request.size(); ++i) {
    const Dim& d = request[i];
    if (d == Dim(-1)) {
      if (rest) return {};
      rest = i;
      out.emplace_back(1);
    } else if (d == Dim(0) && !allow_zero) {
      if (i >= from.size()) return {};
      out.push_back(from[i]);
    } else if (surely_not_negative(d, ranges) || std::find(from.begin(), from.end(), d) != from.end()) {
      out.push_back(d);  // a size that x has already is one, whatever its bounds say
    } else {
      return {};
    }
  }
  if (rest) {
    // Dims that are kept in place cancel, which also gives the right answer when one of them is 0.
    Shape left = from, right = out;
    for (Dim& d : right)
      for (Dim& f : left)
        if (d == f) {
          d = f = Dim(1);
          break;
        }
    Dim remaining = element_count(left), known = element_count(right);
    if (known == Dim(0)) return {};
    if (known.is_const() && remaining.is_const() && remaining.value() % known.value() != 0) return {};
    out[*rest] = Dim::floor_div(remaining, known);
  }
  return out;
}

std::optional<Shape> broadcast_shape(const Shape& a, const Shape& b, const SymbolRanges& ranges) {
  size_t rank = std::max(a.size(), b.size());
  Shape out(rank, Dim(1));
  for (size_t i = 0; i < rank; ++i) {
    Dim x = i < rank - a.size() ? Dim(1) : a[i - (rank - a.size())];
    Dim y = i < rank - b.size() ? Dim(1) : b[i - (rank - b.size())];
    if (x == y || y == Dim(1))
      out[i] = x;
    else if (x == Dim(1))
      out[i] = y;
    else if (equal(y, 1, ranges) == Tri::no && equal(x, y, ranges) != Tri::no)
      out[i] = y;
    else if (equal(x, 1, ranges) == Tri::no && equal(x, y, ranges) != Tri::no)
      out[i] = x;
    else
      return {};
  }
  return out;
}

PadPair same_pads(const Dim& size, int64_t kernel, int64_t stride, int64_t dilation, bool upper,
                  const SymbolRanges& ranges) {
  Dim out = Dim::ceil_div(size, stride);
  Dim total = greatest((out - 1) * stride + ((kernel - 1) * dilation + 1) - size, 0, ranges);
  Dim half = Dim::floor_div(total, 2);
  return upper ? PadPair{half, total - half} : PadPair{total - half, half};
}

}  // namespace pelton::onnx
