// SPDX-License-Identifier: Apache-2.0
#include "ir/gradient.h"
#include "ir/ops/composite.h"
#include "ir/ops/norm_backward.h"

namespace pelton::ir {
namespace {

using Values = std::vector<ValueId>;

// Everything in the wide type; `axes` are those of one statistic.
struct Parts {
  ValueId g, h, rstd;
};

ValueId mean_over(Builder& b, ValueId v, const Ints& axes) {
  return b.reduce("reduce_mean", v, axes, true);
}
ValueId input_gradient(Builder& b, const Parts& p, ValueId s, const Ints& axes, bool centred) {
  ValueId rest = b.mul(p.h, mean_over(b, b.mul(s, p.h), axes));
  if (centred) rest = b.add(rest, mean_over(b, s, axes));
  return b.mul(p.rstd, b.sub(s, rest));
}

Values tail(Builder& b, const Node& n, bool centred) {
  ValueId g = n.inputs[0], x = n.inputs[1];
  DType t = b.dtype(x), wide = wide_type(t);
  int64_t rank = b.rank(x), axis = wrap_axis(n.get_int("axis"), rank);
  Ints axes = axis_range(axis, rank), outer = axis_range(0, axis);
  size_t rstd = centred ? 3 : 2;
  ValueId scale = n.inputs.size() > rstd + 1 ? n.inputs[rstd + 1] : ValueId{};
  Parts p{b.cast(g, wide), b.cast(x, wide), n.inputs[rstd]};
  if (centred) p.h = b.sub(p.h, n.inputs[2]);
  p.h = b.mul(p.h, p.rstd);
  ValueId s = scale ? b.mul(p.g, b.cast(scale, wide)) : p.g;
  Values out{b.cast(input_gradient(b, p, s, axes, centred), t)};
  DType parameter = scale ? b.dtype(scale) : t;
  if (n.outputs.size() > 1)
    out.push_back(b.cast(b.reduce("reduce_sum", b.mul(p.g, p.h), outer, false), parameter));
  if (n.outputs.size() > 2) out.push_back(b.cast(b.reduce("reduce_sum", p.g, outer, false), parameter));
  return out;
}

// [C] (or [N, groups] repeated to channels) as a shape that broadcasts to x[N, C, S...].
ValueId per_channel(Builder& b, ValueId v, int64_t rank) {
  Shape shape(static_cast<size_t>(std::max<int64_t>(rank, 1)), Dim(1));
  if (rank >= 2) shape[1] = b.shape(v)[0];
  return b.reshape(v, shape);
}
Ints other_axes(int64_t rank) {
  Ints axes = axis_range(2, rank);
  axes.insert(axes.begin(), 0);
  return axes;
}
Values parameters(Builder& b, const Node& n, Values out, ValueId g, ValueId h) {
  const Shape shape = b.shape(n.inputs[2]);
  DType t = b.dtype(n.inputs[2]);
  Ints axes = other_axes(b.rank(g));
  auto sum = [&](ValueId v) { return b.cast(b.reshape(b.reduce("reduce_sum", v, axes, false), shape), t); };
  if (n.outputs.size() > 1) out.push_back(sum(b.mul(g, h)));
  if (n.outputs.size() > 2) out.push_back(sum(g));
  return out;
}

}  // namespace

Values decompose_layer_norm_backward(Builder& b, const Node& n) {
  return tail(b, n, true);
}
Values decompose_rms_norm_backward(Builder& b, const Node& n) {
  return tail(b, n, false);
}

Values decompose_batch_norm_backward(Builder& b, const Node& n) {
  ValueId x = n.inputs[1];
  DType t = b.dtype(x), wide = wide_type(t);
  int64_t rank = b.rank(x);
  Parts p{b.cast(n.inputs[0], wide), b.cast(x, wide), per_channel(b, n.inputs[4], rank)};
  p.h = b.mul(b.sub(p.h, per_channel(b, n.inputs[3], rank)), p.rstd);
  ValueId s = b.mul(p.g, b.cast(per_channel(b, n.inputs[2], rank), wide));
  return parameters(b, n, {b.cast(input_gradient(b, p, s, other_axes(rank), true), t)}, p.g, p.h);
}

Values decompose_group_norm_backward(Builder& b, const Node& n) {
  ValueId x = n.inputs[1];
  const Shape shape = b.shape(x);
  DType t = b.dtype(x), wide = wide_type(t);
  Dim groups = n.get_int("groups"), inner = 1;
  for (size_t d = 2; d < shape.size(); ++d) inner = inner * shape[d];
  Shape grouped{shape[0], groups, Dim::floor_div(shape[1], groups) * inner}, stats{shape[0], groups, 1};
  Parts p{b.cast(n.inputs[0], wide), b.cast(x, wide), b.reshape(n.inputs[4], stats)};
  p.h = b.mul(b.sub(b.reshape(p.h, grouped), b.reshape(n.inputs[3], stats)), p.rstd);
  ValueId s = b.mul(p.g, b.cast(per_channel(b, n.inputs[2], b.rank(x)), wide));
  ValueId dx = input_gradient(b, p, b.reshape(s, grouped), {2}, true);
  return parameters(b, n, {b.cast(b.reshape(dx, shape), t)}, p.g, b.reshape(p.h, shape));
}

}  // namespace pelton::ir
