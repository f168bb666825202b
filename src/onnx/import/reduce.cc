// SPDX-License-Identifier: Apache-2.0
// Reductions, arg reductions, running sums.
#include <numeric>

#include "onnx/import/helpers.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

struct Reduction {
  ValueId x;
  Ints axes;
  bool keep_dims;
};

// Axes became an input with operator set 13 for ReduceSum and 18 for the others.
Reduction reduction(NodeContext& c, int64_t input_since = 18) {
  Reduction r{c.in(0), axes_of(c, 1, input_since), c.get_int("keepdims", 1) != 0};
  if (r.axes.empty() && c.get_int("noop_with_empty_axes", 0) == 0) {
    r.axes.resize(static_cast<size_t>(c.b.rank(r.x)));
    std::iota(r.axes.begin(), r.axes.end(), 0);
  }
  r.axes = c.axes(r.axes, c.b.rank(r.x));
  return r;
}
ValueId apply(NodeContext& c, std::string_view op, const Reduction& r, ValueId x) {
  return reduce(c, op, x, r.axes, r.keep_dims);
}

void reduce_sum(NodeContext& c) {
  Reduction r = reduction(c, 13);
  c.out(0, apply(c, "reduce_sum", r, r.x));
}
void reduce_mean(NodeContext& c) {
  Reduction r = reduction(c);
  c.out(0, apply(c, "reduce_mean", r, r.x));
}
void reduce_max(NodeContext& c) {
  Reduction r = reduction(c);
  c.out(0, apply(c, "reduce_max", r, r.x));
}
void reduce_min(NodeContext& c) {
  Reduction r = reduction(c);
  c.out(0, apply(c, "reduce_min", r, r.x));
}
void reduce_prod(NodeContext& c) {
  Reduction r = reduction(c);
  c.out(0, apply(c, "reduce_prod", r, r.x));
}
void reduce_l1(NodeContext& c) {
  Reduction r = reduction(c);
  c.out(0, apply(c, "reduce_sum", r, c.b.op("abs", {r.x})));
}
void reduce_sum_square(NodeContext& c) {
  Reduction r = reduction(c);
  c.out(0, apply(c, "reduce_sum", r, c.b.op("square", {r.x})));
}

// Logarithms and roots of sums: integers go through f64, short floats through f32, rounded once at the end.
ValueId as_real(NodeContext& c, ValueId x) {
  return c.b.cast(x, is_float(c.b.dtype(x)) ? at_least_f32(c.b.dtype(x)) : DType::f64);
}

void reduce_l2(NodeContext& c) {
  Reduction r = reduction(c);
  ValueId sum = apply(c, "reduce_sum", r, c.b.op("square", {as_real(c, r.x)}));
  c.out(0, c.b.cast(c.b.op("sqrt", {sum}), c.b.dtype(r.x)));
}
void reduce_log_sum(NodeContext& c) {
  Reduction r = reduction(c);
  ValueId y = c.b.op("log", {apply(c, "reduce_sum", r, as_real(c, r.x))});
  c.out(0, c.b.cast(y, c.b.dtype(r.x)));
}
void reduce_log_sum_exp(NodeContext& c) {
  Reduction r = reduction(c);
  ValueId x = as_real(c, r.x);
  ValueId top = reduce(c, "reduce_max", x, r.axes, true);
  // An infinite maximum would give inf - inf.
  ValueId infinite = c.b.op("or", {c.b.op("is_inf_pos", {top}), c.b.op("is_inf_neg", {top})});
  ValueId shift = c.b.select(infinite, c.b.like(x, 0), top);
  ValueId sum = apply(c, "reduce_sum", r, c.b.op("exp", {c.b.sub(x, shift)}));
  ValueId log = c.b.op("log", {sum});
  ValueId y = c.b.add(log, c.b.reshape(shift, c.b.shape(log)));
  c.out(0, c.b.cast(y, c.b.dtype(r.x)));
}

void arg(NodeContext& c, std::string_view op) {
  ValueId x = c.in(0);
  c.out(0, c.b.op(op, {x},
                  {{"axis", c.axis(c.get_int("axis", 0), c.b.rank(x))},
                   {"keep_dims", c.get_int("keepdims", 1) != 0},
                   {"last", c.get_int("select_last_index", 0) != 0}}));
}
void arg_max(NodeContext& c) {
  arg(c, "arg_max");
}
void arg_min(NodeContext& c) {
  arg(c, "arg_min");
}

void cumulative(NodeContext& c, std::string_view op) {
  ValueId x = c.in(0);
  Ints axis = c.need_ints(1, "axis");
  if (axis.size() != 1) c.refuse(ErrorCode::bad_shape, "takes one axis");
  c.out(0, c.b.op(op, {x},
                  {{"axis", c.axis(axis[0], c.b.rank(x))},
                   {"exclusive", c.get_int("exclusive", 0) != 0},
                   {"reverse", c.get_int("reverse", 0) != 0}}));
}
void cumsum(NodeContext& c) {
  cumulative(c, "cumsum");
}
void cumprod(NodeContext& c) {
  cumulative(c, "cumprod");
}

}  // namespace

void add_reduce(ImportTable& table) {
  table.add("ReduceSum", reduce_sum);
  table.add("ReduceMean", reduce_mean);
  table.add("ReduceMax", reduce_max);
  table.add("ReduceMin", reduce_min);
  table.add("ReduceProd", reduce_prod);
  table.add("ReduceL1", reduce_l1);
  table.add("ReduceL2", reduce_l2);
  table.add("ReduceLogSum", reduce_log_sum);
  table.add("ReduceLogSumExp", reduce_log_sum_exp);
  table.add("ReduceSumSquare", reduce_sum_square);
  table.add("ArgMax", arg_max);
  table.add("ArgMin", arg_min);
  table.add("CumSum", cumsum);
  table.add("CumProd", cumprod);
}

}  // namespace pelton::onnx
