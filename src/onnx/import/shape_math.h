// SPDX-License-Identifier: Apache-2.0
// Rules of ONNX for sizes, over symbolic dims. A rule that cannot be decided for every value of the symbols
// has no answer, and the caller falls back on an op that decides at run time.
#pragma once

#include <optional>

#include "tensor/dim.h"

namespace pelton::onnx {

// True only if it holds for all values of the symbols.
bool surely_negative(const Dim& d, const SymbolRanges& ranges);
bool surely_not_negative(const Dim& d, const SymbolRanges& ranges);

// min and max, simplified where the order is provable.
Dim least(const Dim& a, const Dim& b, const SymbolRanges& ranges);
Dim greatest(const Dim& a, const Dim& b, const SymbolRanges& ranges);

// One axis of Slice: start and number of elements for an axis of `size`.
struct SliceRange {
  Dim start, count;
};
std::optional<SliceRange> slice_range(const Dim& size, const Dim& start, const Dim& end, int64_t step,
                                      const SymbolRanges& ranges);

// Target of Reshape: 0 keeps the size (unless allow_zero), one -1 takes what is left.
std::optional<Shape> reshape_target(const Shape& from, const Shape& request, bool allow_zero,
                                    const SymbolRanges& ranges);

// NumPy broadcast of two shapes; none where equality is neither provable nor refutable.
std::optional<Shape> broadcast_shape(const Shape& a, const Shape& b, const SymbolRanges& ranges);

// Pads of a convolution or pooling axis under SAME_UPPER or SAME_LOWER.
struct PadPair {
  Dim low, high;
};
PadPair same_pads(const Dim& size, int64_t kernel, int64_t stride, int64_t dilation, bool upper,
                  const SymbolRanges& ranges);

}  // namespace pelton::onnx
