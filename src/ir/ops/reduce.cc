// SPDX-License-Identifier: Apache-2.0
// Reductions over axes and scans along one: rows and inference. Evaluation in reduce_eval.cc.
#include <algorithm>

#include "ir/builder.h"
#include "ir/ops/common.h"
#include "ir/ops/reduce_eval.h"

namespace pelton::ir {
namespace {

bool takes(std::string_view op_name, DType t) {
  if (supports_number(t)) return true;
  return t == DType::boolean &&
         (op_name == "reduce_max" || op_name == "reduce_min" || op_name == "reduce_prod");
}

Shape reduced(const Shape& from, const Ints& axes, bool keep_dims) {
  Shape out;
  for (size_t d = 0; d < from.size(); ++d) {
    bool gone = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(d));
    if (!gone)
      out.push_back(from[d]);
    else if (keep_dims)
      out.push_back(Dim(1));
  }
  return out;
}

std::optional<Dim> fold(std::string_view op_name, const Contents& values) {
  if (values.empty()) return std::nullopt;
  Dim acc = values[0];
  for (size_t i = 1; i < values.size(); ++i) {
    if (op_name == "reduce_sum")
      acc = acc + values[i];
    else if (op_name == "reduce_prod")
      acc = acc * values[i];
    else if (op_name == "reduce_max")
      acc = Dim::max(acc, values[i]);
    else if (op_name == "reduce_min")
      acc = Dim::min(acc, values[i]);
    else
      return std::nullopt;
  }
  return acc;
}

void infer_reduce(InferContext& c) {
  DType t = c.dtype(0);
  c.require(takes(c.node.op->name, t), ErrorCode::bad_type, "C1",
            cat("does not take ", name(t), " elements"));
  Ints axes = c.axes(c.node.get_ints("axes"), c.rank(0));
  c.output(0, t, reduced(c.shape(0), axes, c.node.get_bool("keep_dims")));
  if (auto contents = c.contents(0); contents && is_int(t) && c.rank(0) == 1 && axes.size() == 1)
    if (auto value = fold(c.node.op->name, *contents)) c.output_contents(0, {*value});
}

void infer_arg(InferContext& c) {
  DType t = c.dtype(0);
  c.require(supports_number(t), ErrorCode::bad_type, "C1", cat("does not take ", name(t), " elements"));
  int64_t axis = c.axis(c.node.get_int("axis"), c.rank(0));
  Dim size = c.shape(0)[static_cast<size_t>(axis)];
  c.require(size != Dim(0), ErrorCode::bad_shape, "C2", cat("has nothing to choose from along axis ", axis));
  c.output(0, DType::i64, reduced(c.shape(0), {axis}, c.node.get_bool("keep_dims")));
}

void infer_scan(InferContext& c) {
  DType t = c.dtype(0);
  c.require(supports_number(t), ErrorCode::bad_type, "C1", cat("does not take ", name(t), " elements"));
  c.axis(c.node.get_int("axis"), c.rank(0));
  c.output(0, t, c.shape(0));
}

double input_flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>&) {
  return static_cast<double>(element_count(in[0]));
}

OpDef reduce_row(std::string_view name, void (*eval)(EvalContext&)) {
  OpDef row;
  row.name = name;
  row.family = Family::reduction;
  row.attrs = {{"axes", AttrKind::ints, {}}, {"keep_dims", AttrKind::boolean, Attr(false)}};
  row.constraints = {"C1: the element type is one the op accepts"};
  row.infer = infer_reduce;
  row.eval = eval;
  row.flops = input_flops;
  row.precision = name == "reduce_max" || name == "reduce_min" ? Precision::exact : Precision::accumulates;
  row.layout = LayoutFreedom::channels;
  row.sharding = name == "reduce_mean" ? "reduce:mean" : name == "reduce_sum" ? "reduce:sum" : "reduce";
  row.batching = "shift_axes";
  return row;
}

OpDef axis_row(std::string_view name, std::vector<AttrDef> attrs, void (*infer)(InferContext&),
               void (*eval)(EvalContext&), std::vector<std::string_view> constraints) {
  OpDef row;
  row.name = name;
  row.family = Family::reduction;
  row.attrs = std::move(attrs);
  row.constraints = std::move(constraints);
  row.infer = infer;
  row.eval = eval;
  row.flops = input_flops;
  row.sharding = "other_axes";
  row.batching = "shift_axes";
  return row;
}

}  // namespace

void add_reduce(OpRows& rows) {
  rows.push_back(reduce_row("reduce_sum", eval_reduce_sum));
  rows.push_back(reduce_row("reduce_mean", eval_reduce_mean));
  rows.push_back(reduce_row("reduce_max", eval_reduce_max));
  rows.push_back(reduce_row("reduce_min", eval_reduce_min));
  rows.push_back(reduce_row("reduce_prod", eval_reduce_prod));
  std::vector<AttrDef> arg_attrs = {{"axis", AttrKind::integer, {}},
                                    {"keep_dims", AttrKind::boolean, Attr(false)},
                                    {"last", AttrKind::boolean, Attr(false)}};
  std::vector<std::string_view> arg_rules = {"C1: the element type is a number", "C2: the axis is not empty"};
  rows.push_back(axis_row("arg_max", arg_attrs, infer_arg, eval_arg_max, arg_rules));
  rows.back().precision = Precision::exact;
  rows.push_back(axis_row("arg_min", arg_attrs, infer_arg, eval_arg_min, arg_rules));
  rows.back().precision = Precision::exact;
  std::vector<AttrDef> scan_attrs = {{"axis", AttrKind::integer, {}},
                                     {"exclusive", AttrKind::boolean, Attr(false)},
                                     {"reverse", AttrKind::boolean, Attr(false)}};
  std::vector<std::string_view> scan_rules = {"C1: the element type is a number"};
  rows.push_back(axis_row("cumsum", scan_attrs, infer_scan, eval_cumsum, scan_rules));
  rows.back().precision = Precision::accumulates;
  rows.push_back(axis_row("cumprod", scan_attrs, infer_scan, eval_cumprod, scan_rules));
  rows.back().precision = Precision::accumulates;
}

}  // namespace pelton::ir
