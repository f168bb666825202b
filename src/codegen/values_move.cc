// SPDX-License-Identifier: Apache-2.0
// Which element of which operand a node's element is: movement, constants, and the way to the other ops.
#include <cmath>

#include "codegen/values.h"
#include "ir/op.h"

namespace pelton::codegen {

using namespace ir;

ScalarId Values::concat(NodeId id, const Shape& index, const Mask& mask) {
  const Node& n = g_[id];
  int64_t axis = n.get_int("axis");
  auto a = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(index.size()) : axis);
  Dim start = 0;
  ScalarId result = 0;
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    Shape at = index;
    at[a] = index[a] - start;
    Dim size = g_.type(n.inputs[i]).shape[a];
    Mask inside = mask;
    inside.push_back({at[a], size});
    ScalarId part = element(n.inputs[i], at, inside);
    result = i == 0 ? part : apply("select", {test({{at[a], size}}), part, result}, k_.scalar_types[part]);
    start = start + size;
  }
  return result;
}

ScalarId Values::pad(NodeId id, const Shape& index, const Mask& mask) {
  const Node& n = g_[id];
  if (n.get_text("mode") != "constant") throw Unsupported{cat("pad of mode ", n.get_text("mode"))};
  const Shape &low = n.get_dims("low"), &high = n.get_dims("high"), &shape = g_.type(n.inputs[0]).shape;
  Shape at = index;
  Mask bounds, inside = mask;
  for (size_t d = 0; d < at.size(); ++d) {
    if (low[d] == Dim(0) && high[d] == Dim(0)) continue;
    at[d] = index[d] - low[d];
    bounds.push_back({at[d], shape[d]});
    inside.push_back(bounds.back());
  }
  if (bounds.empty()) return element(n.inputs[0], at, mask);
  ScalarId x = element(n.inputs[0], at, inside);
  ScalarId value;
  if (n.inputs.size() > 1 && n.inputs[1])
    value = element(n.inputs[1], Shape(g_.type(n.inputs[1]).shape.size(), Dim(0)), mask);
  else
    value = constant(k_.scalar_types[x], 0);
  return apply("select", {test(bounds), x, value}, k_.scalar_types[x]);
}

ScalarId Values::compute(ValueId v, const Shape& index, const Mask& mask) {
  NodeId id = g_[v].producer;
  if (!id) {
    for (size_t i = 0; i < g_.inputs.size(); ++i)
      if (g_.inputs[i] == v) return load(i, index, mask);
    throw Unsupported{"a state slot"};
  }
  const Node& n = g_[id];
  auto shape_in = [&]() -> const Shape& { return g_.type(n.inputs[0]).shape; };
  auto wrap = [](int64_t a, size_t rank) {
    return static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(rank) : a);
  };
  DType t = g_.type(v).dtype;
  if (is_reduction(n)) return reduce(id, index, mask);
  if (n.op->scalar) return apply(id, index, mask);
  if (n.is("constant")) {
    const Tensor& value = n.get_tensor("value");
    auto same = [&](int64_t i) {
      if (!is_float(t)) return value.get_int(i) == value.get_int(0);
      const double a = value.get_double(0), b = value.get_double(i);
      return a == b && std::signbit(a) == std::signbit(b);
    };
    for (int64_t i = 1; i < value.count(); ++i)
      if (!same(i)) throw Unsupported{cat("a constant of ", value.count(), " different elements")};
    if (value.count() == 0) throw Unsupported{"an empty constant"};
    return constant_of(value, 0);
  }
  if (n.is("cast")) {
    if (!is_compute(t)) throw Unsupported{cat("a cast to ", pelton::name(t))};
    // An explicit cast rounds; afterwards f16 and bf16 go on as f32.
    return cast(cast(element(n.inputs[0], index, mask), t), computed(t));
  }
  if (n.is("broadcast_to")) return element(n.inputs[0], operand_index(id, 0, index), mask);
  if (n.is("fill")) return element(n.inputs[0], Shape(shape_in().size(), Dim(0)), mask);
  if (n.is("reshape")) return element(n.inputs[0], digits(linear(index, g_.type(v).shape), shape_in()), mask);
  if (n.is("transpose")) {
    Shape at(index.size());
    for (size_t d = 0; d < index.size(); ++d) at[static_cast<size_t>(n.get_ints("perm")[d])] = index[d];
    return element(n.inputs[0], at, mask);
  }
  Shape at = index;
  if (n.is("slice")) {
    for (size_t i = 0; i < n.get_ints("axes").size(); ++i) {
      size_t a = wrap(n.get_ints("axes")[i], at.size());
      at[a] = n.get_dims("starts")[i] + index[a] * n.get_ints("steps")[i];
    }
    return element(n.inputs[0], at, mask);
  }
  if (n.is("reverse")) {
    for (int64_t axis : n.get_ints("axes")) {
      size_t a = wrap(axis, at.size());
      at[a] = shape_in()[a] - 1 - index[a];
    }
    return element(n.inputs[0], at, mask);
  }
  if (n.is("tile")) {
    for (size_t d = 0; d < at.size(); ++d)
      if (n.get_dims("repeats")[d] != Dim(1))
        at[d] = index[d] - shape_in()[d] * Dim::floor_div(index[d], shape_in()[d]);
    return element(n.inputs[0], at, mask);
  }
  if (n.is("iota"))
    return cast(cast(index_value(index[wrap(n.get_int("axis"), index.size())]), t), computed(t));
  if (n.is("concat")) return concat(id, index, mask);
  if (n.is("pad")) return pad(id, index, mask);
  throw Unsupported{cat("op ", n.op->name)};
}

}  // namespace pelton::codegen
