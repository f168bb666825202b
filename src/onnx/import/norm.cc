// SPDX-License-Identifier: Apache-2.0
// Normalisations. x[N,C,S...]; scale, bias, mean and var are [C].
#include <numeric>

#include "onnx/import/helpers.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

double epsilon(NodeContext& c, double otherwise = static_cast<double>(1e-5f)) {
  return c.get_real("epsilon", otherwise);
}

void layer_norm(NodeContext& c) {
  ValueId x = c.in(0), scale = c.in(1);
  std::vector<ValueId> inputs{x, scale};
  if (c.has(2)) inputs.push_back(c.in(2));
  int64_t axis = c.axis(c.get_int("axis", -1), c.b.rank(x));
  auto y = c.b.ops("layer_norm", inputs, {{"axis", axis}, {"eps", epsilon(c)}},
                   c.wants(2)   ? 3
                   : c.wants(1) ? 2
                                : 1);
  DType stash = c.get_int("stash_type", 1) == 1 ? at_least_f32(c.b.dtype(x)) : c.b.dtype(x);
  c.out(0, y[0]);
  for (size_t i = 1; i < y.size(); ++i)
    if (c.wants(i)) c.out(i, c.b.cast(y[i], stash));
}

void rms_norm(NodeContext& c) {
  ValueId x = c.in(0);
  int64_t axis = c.axis(c.get_int("axis", -1), c.b.rank(x));
  c.out(0, c.b.op("rms_norm", {x, c.in(1)}, {{"axis", axis}, {"eps", epsilon(c)}}));
}

Ints all_but_channels(int64_t rank) {
  Ints axes;
  for (int64_t i = 0; i < rank; ++i)
    if (i != 1) axes.push_back(i);
  return axes;
}

void batch_norm(NodeContext& c) {
  ValueId x = c.in(0), scale = c.in(1), bias = c.in(2), mean = c.in(3), var = c.in(4);
  double eps = epsilon(c), momentum = c.get_real("momentum", static_cast<double>(0.9f));
  if (c.opset < 9 && c.get_int("spatial", 1) == 0)
    c.refuse(ErrorCode::unsupported_op, "statistics per element (spatial = 0) are not supported");
  bool training = c.opset >= 14 && c.get_int("training_mode", 0) != 0;
  if (!training) {
    auto as_x = [&](ValueId v) { return c.b.cast(v, c.b.dtype(scale)); };
    return c.out(0, c.b.op("batch_norm", {x, scale, bias, as_x(mean), as_x(var)}, {{"eps", eps}}));
  }
  // The batch's own statistics, in at least f32; running values move towards them.
  Ints axes = all_but_channels(c.b.rank(x));
  ValueId wide = c.b.cast(x, at_least_f32(c.b.dtype(x)));
  ValueId own_mean = reduce(c, "reduce_mean", wide, axes, false);
  ValueId centred = c.b.sub(wide, reduce(c, "reduce_mean", wide, axes, true));
  ValueId own_var = reduce(c, "reduce_mean", c.b.op("square", {centred}), axes, false);
  auto move = [&](ValueId running, ValueId now) {
    ValueId kept = c.b.mul(running, c.b.like(running, momentum));
    return c.b.add(kept, c.b.mul(c.b.cast(now, c.b.dtype(running)), c.b.like(running, 1 - momentum)));
  };
  c.out(0, c.b.op("batch_norm",
                  {x, scale, bias, c.b.cast(own_mean, c.b.dtype(scale)), c.b.cast(own_var, c.b.dtype(scale))},
                  {{"eps", eps}}));
  c.out(1, move(mean, own_mean));
  c.out(2, move(var, own_var));
}

void group_norm_of(NodeContext& c, ValueId x, ValueId scale, ValueId bias, int64_t groups) {
  c.out(0, c.b.op("group_norm", {x, scale, bias}, {{"groups", groups}, {"eps", epsilon(c)}}));
}
void instance_norm(NodeContext& c) {
  ValueId x = c.in(0);
  group_norm_of(c, x, c.in(1), c.in(2), c.need_const(c.b.shape(x).at(1), "the number of channels"));
}
void group_norm(NodeContext& c) {
  ValueId x = c.in(0), scale = c.in(1), bias = c.in(2);
  int64_t groups = c.need_int("num_groups");
  if (c.opset < 21) {  // one scale a group
    Dim channels = c.b.shape(x).at(1), each = Dim::floor_div(channels, groups);
    auto spread = [&](ValueId v) {
      return c.b.reshape(c.b.broadcast_to(c.b.reshape(v, {groups, 1}), {groups, each}), {channels});
    };
    scale = spread(scale);
    bias = spread(bias);
  }
  group_norm_of(c, x, scale, bias, groups);
}

void lrn(NodeContext& c) {
  c.out(0, c.b.op("lrn", {c.in(0)},
                  {{"size", c.need_int("size")},
                   {"alpha", c.get_real("alpha", static_cast<double>(0.0001f))},
                   {"beta", c.get_real("beta", 0.75)},
                   {"bias", c.get_real("bias", 1)}}));
}
void lp_norm(NodeContext& c) {
  ValueId x = c.in(0);
  c.out(0, c.b.op("lp_norm", {x},
                  {{"axis", c.axis(c.get_int("axis", -1), c.b.rank(x))}, {"p", c.get_int("p", 2)}}));
}

void mean_variance(NodeContext& c) {
  ValueId x = c.in(0);
  Ints axes = c.get_ints("axes");
  if (!c.has_attr("axes")) axes = {0, 2, 3};
  axes = c.axes(axes, c.b.rank(x));
  ValueId wide = c.b.cast(x, at_least_f32(c.b.dtype(x)));
  ValueId centred = c.b.sub(wide, reduce(c, "reduce_mean", wide, axes, true));
  ValueId deviation = c.b.op("sqrt", {reduce(c, "reduce_mean", c.b.op("square", {centred}), axes, true)});
  ValueId y = c.b.div(centred, c.b.add(deviation, c.b.like(deviation, 1e-9)));
  c.out(0, c.b.cast(y, c.b.dtype(x)));
}

}  // namespace

void add_norm(ImportTable& table) {
  table.add("LayerNormalization", layer_norm);
  table.add("RMSNormalization", rms_norm);
  table.add("BatchNormalization", batch_norm);
  table.add("InstanceNormalization", instance_norm);
  table.add("GroupNormalization", group_norm);
  table.add("LRN", lrn);
  table.add("LpNormalization", lp_norm);
  table.add("MeanVarianceNormalization", mean_variance);
}

}  // namespace pelton::onnx
