// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/window.h"

namespace pelton::ir {

std::vector<AttrDef> window_attrs() {
  return {{"strides", AttrKind::ints, Attr(Ints{})},
          {"dilations", AttrKind::ints, Attr(Ints{})},
          {"low", AttrKind::dims, Attr(Shape{})},
          {"high", AttrKind::dims, Attr(Shape{})}};
}

Window window_of(const Node& node, size_t spatial) {
  Window w;
  if (node.op->find_attr("strides")) w.strides = node.get_ints("strides");
  if (node.op->find_attr("dilations")) w.dilations = node.get_ints("dilations");
  w.low = node.get_dims("low");
  w.high = node.get_dims("high");
  if (w.strides.empty()) w.strides.assign(spatial, 1);
  if (w.dilations.empty()) w.dilations.assign(spatial, 1);
  if (w.low.empty()) w.low.assign(spatial, Dim(0));
  if (w.high.empty()) w.high.assign(spatial, Dim(0));
  return w;
}

ConcreteWindow concrete_window(const EvalContext& c, Dims kernel) {
  Window w = window_of(c.node, kernel.size());
  return {std::move(kernel), w.strides, w.dilations, pelton::eval(w.low, c.symbols),
          pelton::eval(w.high, c.symbols)};
}

int64_t ConcreteWindow::out_size(size_t axis, int64_t size, bool ceil) const {
  int64_t free = size + low[axis] + high[axis] - extent(axis), step = strides[axis];
  if (free < 0)
    fail(ErrorCode::bad_shape, cat("a window of ", extent(axis), " does not fit into size ", size,
                                   " with pads ", low[axis], " and ", high[axis]));
  if (!ceil) return free / step + 1;
  return std::min((free + step - 1) / step + 1, (size + low[axis] - 1) / step + 1);
}

ConcreteWindow::Taps ConcreteWindow::taps_inside(size_t axis, int64_t o, int64_t size) const {
  const int64_t start = o * strides[axis] - low[axis], step = dilations[axis];
  const int64_t first = start < 0 ? (-start - 1) / step + 1 : 0;
  const int64_t last = size > start ? std::min(kernel[axis], (size - 1 - start) / step + 1) : 0;
  return {std::min(first, last), last};
}

Shape infer_window(const InferContext& c, const Shape& spatial, const Shape& kernel, bool ceil) {
  size_t rank = spatial.size();
  Window w = window_of(c.node, rank);
  c.require(w.strides.size() == rank && w.dilations.size() == rank && w.low.size() == rank &&
                w.high.size() == rank && kernel.size() == rank,
            ErrorCode::usage, "W1",
            cat("needs kernel sizes, strides, dilations and pads for ", rank, " spatial axes"));
  Shape out;
  for (size_t i = 0; i < rank; ++i) {
    c.require(w.strides[i] >= 1 && w.dilations[i] >= 1 && kernel[i].range(c.ranges()).max >= 1,
              ErrorCode::usage, "W2",
              cat("needs positive strides, dilations and kernel sizes, not ", w.strides, ", ", w.dilations,
                  " and ", cat(kernel)));
    Dim padded = spatial[i] + w.low[i] + w.high[i];
    Dim free = padded - ((kernel[i] - 1) * w.dilations[i] + 1);
    c.require(free.range(c.ranges()).max >= 0, ErrorCode::bad_shape, "W3",
              cat("has a window of ", (padded - free).str(), " on spatial axis ", i, " of padded size ",
                  padded.str()));
    if (ceil)
      out.push_back(Dim::min(Dim::ceil_div(free, w.strides[i]) + 1,
                             Dim::floor_div(spatial[i] + w.low[i] - 1, w.strides[i]) + 1));
    else
      out.push_back(Dim::floor_div(free, w.strides[i]) + 1);
  }
  return out;
}

}  // namespace pelton::ir
