// SPDX-License-Identifier: Apache-2.0
#include "onnx/import/helpers.h"

namespace pelton::onnx {

ValueId legacy_broadcast(NodeContext& c, ValueId a, ValueId b) {
  if (c.opset >= 7 || c.get_int("broadcast", 0) == 0 || !c.has_attr("axis")) return b;
  int64_t rank = c.b.rank(a), own = c.b.rank(b), axis = c.axis(c.get_int("axis", 0), rank);
  if (axis + own > rank)
    c.refuse(ErrorCode::bad_shape,
             cat("axis ", axis, " leaves no room for the ", own, " dimensions of input 1"));
  Shape shape = c.b.shape(b);
  shape.resize(static_cast<size_t>(rank - axis), Dim(1));
  return c.b.reshape(b, shape);
}

Ints axes_of(NodeContext& c, size_t i, int64_t input_since, std::string_view attr) {
  if (c.opset < input_since) return c.get_ints(attr);
  return c.has(i) ? c.need_ints(i, attr) : Ints{};
}

ValueId flatten_at(NodeContext& c, ValueId x, int64_t axis) {
  const Shape shape = c.b.shape(x);
  if (axis < 0 || axis > static_cast<int64_t>(shape.size()))
    c.refuse(ErrorCode::bad_shape, cat("cannot split ", c.b.type(x).str(), " at axis ", axis));
  auto split = shape.begin() + axis;
  return c.b.reshape(x,
                     {element_count(Shape(shape.begin(), split)), element_count(Shape(split, shape.end()))});
}

ValueId slice_axis(NodeContext& c, ValueId x, int64_t axis, Dim start, Dim size) {
  return c.b.op("slice", {x},
                {{"axes", Ints{axis}}, {"starts", Shape{start}}, {"sizes", Shape{size}}, {"steps", Ints{1}}});
}

std::vector<ValueId> split_axis(NodeContext& c, ValueId x, int64_t axis, const Shape& sizes) {
  std::vector<ValueId> out;
  Dim start = 0;
  for (const Dim& size : sizes) {
    out.push_back(slice_axis(c, x, axis, start, size));
    start = start + size;
  }
  return out;
}

ValueId per_channel(NodeContext& c, ValueId v, int64_t rank) {
  Shape shape(static_cast<size_t>(rank), Dim(1));
  shape.at(1) = element_count(c.b.shape(v));
  return c.b.reshape(v, shape);
}

ValueId reduce(NodeContext& c, std::string_view op, ValueId x, Ints axes, bool keep_dims) {
  return c.b.reduce(op, x, std::move(axes), keep_dims);
}
ValueId concat(NodeContext& c, std::vector<ValueId> parts, int64_t axis) {
  if (parts.size() == 1) return parts[0];
  return c.b.op("concat", std::move(parts), {{"axis", axis}});
}
ValueId to_scalar(NodeContext& c, ValueId v) {
  return c.b.rank(v) ? c.b.reshape(v, {}) : v;
}

ValueId zeros(NodeContext& c, DType dtype, const Shape& shape) {
  return filled(c, dtype, shape, 0);
}
ValueId filled(NodeContext& c, DType dtype, const Shape& shape, double value) {
  Attrs attrs{{"dims", shape}};  // before the graph grows, where `shape` may live
  return c.b.op("fill", {c.b.scalar(dtype, value)}, std::move(attrs));
}

}  // namespace pelton::onnx
