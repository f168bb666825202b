// SPDX-License-Identifier: Apache-2.0
// Gradients of the normalisations: softmax and its logarithm from the result alone, the others by their
// backward form. Statistics have gradients only in second order, where the decomposition serves.
#include "ir/ops/composite.h"
#include "ir/ops/gradients.h"

namespace pelton::ir {
namespace {

using C = GradientContext;

ValueId sum_along(C& c, ValueId v) {
  return c.b.reduce("reduce_sum", v, {wrap_axis(c.node.get_int("axis"), c.b.rank(v))}, true);
}

// y (g - sum(g y)).
void softmax(C& c) {
  Builder& b = c.b;
  DType t = b.dtype(c.grad()), wide = wide_type(t);
  ValueId y = b.cast(c.result(0), wide), g = b.cast(c.grad(), wide);
  c.set(0, b.cast(b.mul(y, b.sub(g, sum_along(c, b.mul(g, y)))), t));
}
// g - exp(y) sum(g).
void log_softmax(C& c) {
  Builder& b = c.b;
  DType t = b.dtype(c.grad()), wide = wide_type(t);
  ValueId y = b.cast(c.result(0), wide), g = b.cast(c.grad(), wide);
  c.set(0, b.cast(b.sub(g, b.mul(b.op("exp", {y}), sum_along(c, g))), t));
}

// A result other than the first has a gradient.
bool statistics_count(const C& c) {
  for (size_t i = 1; i < c.node.outputs.size(); ++i)
    if (c.grad(i)) return true;
  return false;
}
// Whether parameter i varies over the normalised axes only.
bool is_tail(C& c, size_t i, int64_t axis) {
  if (!c.has(i)) return true;
  const Shape& shape = c.b.shape(c.in(i));
  int64_t extra = static_cast<int64_t>(shape.size()) - (c.b.rank(c.in(0)) - axis);
  for (int64_t d = 0; d < extra; ++d)
    if (shape[static_cast<size_t>(d)] != Dim(1)) return false;
  return true;
}
// A gradient of the normalised shape as that of parameter i, which may have sizes of 1 in front.
void set_parameter(C& c, size_t i, ValueId g) {
  if (!c.has(i) || !c.wants(i)) return;
  const Shape shape = c.b.shape(c.in(i));
  Shape padded = c.b.shape(g);
  while (padded.size() < shape.size()) padded.insert(padded.begin(), Dim(1));
  c.set(i, c.b.cast(sum_to_shape(c.b, c.b.reshape(g, padded), shape), c.b.dtype(c.in(i))));
}

template <size_t statistics>  // 2: layer_norm, 1: rms_norm
void tail_norm(C& c) {
  int64_t axis = wrap_axis(c.node.get_int("axis"), c.b.rank(c.in(0)));
  if (statistics_count(c) || !is_tail(c, 1, axis) || !is_tail(c, 2, axis)) return c.use_decomposition();
  bool parameters = c.wants(1) || c.wants(2);
  std::vector<ValueId> in{c.grad(), c.in(0)};
  for (size_t i = 1; i <= statistics; ++i) in.push_back(c.result(i));
  in.push_back(c.in(1));
  std::vector<ValueId> out = c.b.ops(statistics == 2 ? "layer_norm_backward" : "rms_norm_backward", in,
                                     {{"axis", axis}}, parameters ? 1 + statistics : 1);
  if (c.wants(0)) c.set(0, out[0]);
  if (!parameters) return;
  set_parameter(c, 1, out[1]);
  if (statistics == 2) set_parameter(c, 2, out[2]);
}

// x, scale[C], bias[C] and the statistics that results `mean` and `mean + 1` hold.
void channel_norm(C& c, std::string_view backward, size_t mean, Attrs attrs) {
  if (statistics_count(c)) return c.use_decomposition();
  bool parameters = c.wants(1) || c.wants(2);
  ValueId m = c.result(mean), rstd = c.result(mean + 1);
  std::vector<ValueId> out =
      c.b.ops(backward, {c.grad(), c.in(0), c.in(1), m, rstd}, attrs, parameters ? 3 : 1);
  if (c.wants(0)) c.set(0, out[0]);
  if (c.wants(1)) c.set(1, out[1]);
  if (c.wants(2)) c.set(2, c.b.cast(out[2], c.b.dtype(c.in(2))));
}
void batch_norm_train(C& c) {
  channel_norm(c, "batch_norm_backward", 3, {});
}
void group_norm(C& c) {
  channel_norm(c, "group_norm_backward", 1, {{"groups", c.node.get_int("groups")}});
}

}  // namespace

void add_norm_gradients(OpRows& rows) {
  set_gradients(rows, {{"softmax", softmax},
                       {"log_softmax", log_softmax},
                       {"layer_norm", tail_norm<2>},
                       {"rms_norm", tail_norm<1>},
                       {"batch_norm_train", batch_norm_train},
                       {"group_norm", group_norm}});
}

}  // namespace pelton::ir
