// SPDX-License-Identifier: Apache-2.0
// Sliding windows, shared by convolution, pooling and im2col. Attributes strides and dilations (empty: all
// 1), low and high (pads before and after each spatial axis; empty: all 0; negative crops). Letters: S size
// of an axis, K kernel size, O result size; a window covers (K - 1) * dilation + 1 padded positions.
#pragma once

#include "ir/ops/common.h"

namespace pelton::ir {

// The attributes with their defaults filled in, one entry a spatial axis.
struct Window {
  Ints strides, dilations;
  Shape low, high;
};
Window window_of(const Node& node, size_t spatial);

// A window at run time.
struct ConcreteWindow {
  Dims kernel, strides, dilations, low, high;
  int64_t extent(size_t axis) const { return (kernel[axis] - 1) * dilations[axis] + 1; }
  // O of one axis of size S. `ceil` adds a last window that runs over the end, as long as it starts inside
  // the input or the low pad.
  int64_t out_size(size_t axis, int64_t size, bool ceil = false) const;
  // Input position of tap k of window o; may lie outside [0, S).
  int64_t position(size_t axis, int64_t o, int64_t k) const {
    return o * strides[axis] - low[axis] + k * dilations[axis];
  }
  // Taps of window o that lie inside [0, size), in [first, last); a kernel may have far more.
  struct Taps {
    int64_t first, last;
  };
  Taps taps_inside(size_t axis, int64_t o, int64_t size) const;
};
ConcreteWindow concrete_window(const EvalContext& c, Dims kernel);

// Result sizes over `spatial`; constraints W1 to W3 of the rows below.
Shape infer_window(const InferContext& c, const Shape& spatial, const Shape& kernel, bool ceil = false);

// Rows share these words.
inline constexpr std::string_view kW1 = "W1: strides, dilations, low and high have one entry a spatial axis";
inline constexpr std::string_view kW2 = "W2: strides, dilations and kernel sizes are at least 1";
inline constexpr std::string_view kW3 = "W3: the window fits into the padded input";

std::vector<AttrDef> window_attrs();  // strides, dilations, low, high

}  // namespace pelton::ir
