// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/composite.h"
#include "ir/ops/norm.h"

namespace pelton::ir {
namespace {

using Values = std::vector<ValueId>;

// x in the type statistics are computed in.
ValueId widened(Builder& b, ValueId x) {
  return b.cast(x, wide_type(b.dtype(x)));
}
ValueId rstd_of(Builder& b, ValueId variance, const Node& n) {
  return b.op("rsqrt", {b.add(variance, b.like(variance, n.get_real("eps")))});
}
// [C] as [1, C, 1...] of the rank of x, in its type.
ValueId per_channel(Builder& b, ValueId v, ValueId x) {
  Shape shape(static_cast<size_t>(std::max<int64_t>(b.rank(x), 1)), Dim(1));
  if (b.rank(x) >= 2) shape[1] = b.shape(v)[0];
  return b.cast(b.reshape(v, shape), b.dtype(x));
}
// Optional operand `i` of n applied to v by `op`.
ValueId apply_optional(Builder& b, std::string_view op, ValueId v, const Node& n, size_t i) {
  if (i >= n.inputs.size() || !n.inputs[i]) return v;
  return b.op(op, {v, b.cast(n.inputs[i], b.dtype(v))});
}

struct Lane {
  Ints axes;
  ValueId x;
};
Lane last_axes(Builder& b, const Node& n) {
  ValueId x = n.inputs[0];
  return {axis_range(wrap_axis(n.get_int("axis"), b.rank(x)), b.rank(x)), widened(b, x)};
}
Lane one_axis(Builder& b, const Node& n) {
  ValueId x = n.inputs[0];
  return {{wrap_axis(n.get_int("axis"), b.rank(x))}, widened(b, x)};
}
Values first_of(const Values& values, const Node& n) {
  return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n.outputs.size())};
}

}  // namespace

Values decompose_softmax(Builder& b, const Node& n) {
  auto [axes, x] = one_axis(b, n);
  ValueId e = b.op("exp", {b.sub(x, b.reduce("reduce_max", x, axes, true))});
  return {b.cast(b.div(e, b.reduce("reduce_sum", e, axes, true)), b.dtype(n.inputs[0]))};
}
Values decompose_log_softmax(Builder& b, const Node& n) {
  auto [axes, x] = one_axis(b, n);
  ValueId shifted = b.sub(x, b.reduce("reduce_max", x, axes, true));
  ValueId sum = b.reduce("reduce_sum", b.op("exp", {shifted}), axes, true);
  return {b.cast(b.sub(shifted, b.op("log", {sum})), b.dtype(n.inputs[0]))};
}

Values decompose_layer_norm(Builder& b, const Node& n) {
  auto [axes, x] = last_axes(b, n);
  ValueId mean = b.reduce("reduce_mean", x, axes, true);
  ValueId centred = b.sub(x, mean);
  ValueId rstd = rstd_of(b, b.reduce("reduce_mean", b.op("square", {centred}), axes, true), n);
  ValueId y = apply_optional(b, "add", apply_optional(b, "mul", b.mul(centred, rstd), n, 1), n, 2);
  return first_of({b.cast(y, b.dtype(n.inputs[0])), mean, rstd}, n);
}
Values decompose_rms_norm(Builder& b, const Node& n) {
  auto [axes, x] = last_axes(b, n);
  ValueId rstd = rstd_of(b, b.reduce("reduce_mean", b.op("square", {x}), axes, true), n);
  ValueId y = apply_optional(b, "mul", b.mul(x, rstd), n, 1);
  return first_of({b.cast(y, b.dtype(n.inputs[0])), rstd}, n);
}

Values decompose_batch_norm(Builder& b, const Node& n) {
  ValueId x = widened(b, n.inputs[0]);
  ValueId rstd = rstd_of(b, per_channel(b, n.inputs[4], x), n);
  ValueId scale = b.mul(per_channel(b, n.inputs[1], x), rstd);
  ValueId centred = b.sub(x, per_channel(b, n.inputs[3], x));
  ValueId y = b.add(b.mul(centred, scale), per_channel(b, n.inputs[2], x));
  return {b.cast(y, b.dtype(n.inputs[0]))};
}

Values decompose_batch_norm_train(Builder& b, const Node& n) {
  ValueId x = widened(b, n.inputs[0]);
  Ints axes = axis_range(2, b.rank(x));
  axes.insert(axes.begin(), 0);
  ValueId mean = b.reduce("reduce_mean", x, axes, true);
  ValueId centred = b.sub(x, mean);
  ValueId variance = b.reduce("reduce_mean", b.op("square", {centred}), axes, true);
  ValueId rstd = rstd_of(b, variance, n);
  ValueId scaled = b.mul(b.mul(centred, rstd), per_channel(b, n.inputs[1], x));
  ValueId y = b.cast(b.add(scaled, per_channel(b, n.inputs[2], x)), b.dtype(n.inputs[0]));
  double keep = n.get_real("momentum");
  auto blend = [&](ValueId running, ValueId now) {
    ValueId old = b.cast(running, b.dtype(now));
    now = b.reshape(now, b.shape(running));
    ValueId sum = b.add(b.mul(old, b.like(old, keep)), b.mul(now, b.like(now, 1 - keep)));
    return b.cast(sum, b.dtype(running));
  };
  Values all{y, blend(n.inputs[3], mean), blend(n.inputs[4], variance)};
  for (ValueId statistic : {mean, rstd}) all.push_back(b.reshape(statistic, b.shape(n.inputs[3])));
  return first_of(all, n);
}

Values decompose_group_norm(Builder& b, const Node& n) {
  ValueId x = widened(b, n.inputs[0]);
  Shape shape = b.shape(x);
  Dim groups = n.get_int("groups"), inner = 1;
  for (size_t d = 2; d < shape.size(); ++d) inner = inner * shape[d];
  ValueId grouped = b.reshape(x, {shape[0], groups, Dim::floor_div(shape[1], groups) * inner});
  ValueId mean = b.reduce("reduce_mean", grouped, {2}, true);
  ValueId centred = b.sub(grouped, mean);
  ValueId rstd = rstd_of(b, b.reduce("reduce_mean", b.op("square", {centred}), {2}, true), n);
  ValueId y = b.reshape(b.mul(centred, rstd), shape);
  y = b.add(b.mul(y, per_channel(b, n.inputs[1], x)), per_channel(b, n.inputs[2], x));
  Shape stats{shape[0], groups};
  return first_of({b.cast(y, b.dtype(n.inputs[0])), b.reshape(mean, stats), b.reshape(rstd, stats)}, n);
}

Values decompose_lrn(Builder& b, const Node& n) {
  constexpr int64_t kWidest = 256;  // a wider window stays whole: a node for each of its places
  int64_t size = n.get_int("size"), before = (size - 1) / 2;
  if (size > kWidest) return {};
  ValueId x = widened(b, n.inputs[0]);
  auto rank = static_cast<size_t>(b.rank(x));
  Shape low(rank, Dim(0)), high = low;
  low[1] = before;
  high[1] = size - 1 - before;
  ValueId squares = b.op("pad", {b.op("square", {x})}, {{"low", low}, {"high", high}});
  ValueId sum;
  for (int64_t k = 0; k < size; ++k) {
    ValueId part =
        b.op("slice", {squares},
             {{"axes", Ints{1}}, {"starts", Shape{k}}, {"sizes", Shape{b.shape(x)[1]}}, {"steps", Ints{1}}});
    sum = k == 0 ? part : b.add(sum, part);
  }
  ValueId base = b.add(b.mul(sum, b.like(x, n.get_real("alpha") / static_cast<double>(size))),
                       b.like(x, n.get_real("bias")));
  return {b.cast(b.div(x, b.op("pow", {base, b.like(x, n.get_real("beta"))})), b.dtype(n.inputs[0]))};
}

Values decompose_lp_norm(Builder& b, const Node& n) {
  auto [axes, x] = one_axis(b, n);
  bool squares = n.get_int("p") == 2;
  ValueId norm = b.reduce("reduce_sum", b.op(squares ? "square" : "abs", {x}), axes, true);
  if (squares) norm = b.op("sqrt", {norm});
  ValueId is_zero = b.op("eq", {norm, b.like(norm, 0)});
  return {b.cast(b.select(is_zero, b.like(x, 0), b.div(x, norm)), b.dtype(n.inputs[0]))};
}

}  // namespace pelton::ir
