// SPDX-License-Identifier: Apache-2.0
// Backward forms of the normalisations: rows and inference. With h = (x - mean) rstd (rms_norm: x rstd) and
// s = g scale, over the normalised elements: dx = rstd (s - mean(s) - h mean(s h)), rms_norm without mean(s).
#include "ir/ops/norm_backward.h"

#include "ir/ops/composite.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;

// g and x of one type and shape.
void require_pair(InferContext& c) {
  for (size_t i : {0, 1}) require_float(c, i, "C1");
  require_same_type(c, 0, 1, "C1");
  c.require(c.rank(0) == c.rank(1), kShape, "C2",
            cat("needs a gradient of the shape of x, not ", cat(c.shape(0)), " for ", cat(c.shape(1))));
  for (size_t d = 0; d < c.shape(1).size(); ++d) c.same(c.shape(0)[d], c.shape(1)[d], "C2");
}
void require_statistic(InferContext& c, size_t i, const Shape& shape) {
  c.require(
      c.dtype(i) == wide_type(c.dtype(1)), ErrorCode::bad_type, "C1",
      cat("needs statistics of ", name(wide_type(c.dtype(1))), " as input ", i, ", not ", name(c.dtype(i))));
  c.require(c.shape(i).size() == shape.size(), kShape, "C3",
            cat("needs statistics of shape ", cat(shape), " as input ", i, ", not ", cat(c.shape(i))));
  for (size_t d = 0; d < shape.size(); ++d) c.same(c.shape(i)[d], shape[d], "C3");
}

// (g, x, statistics..., [scale]): dx and, for each parameter, a gradient of the normalised shape.
void infer_tail(InferContext& c, size_t statistics) {
  require_pair(c);
  const Shape x = c.shape(1);
  auto axis = c.axis(c.node.get_int("axis"), c.rank(1));
  Shape stats = x;
  for (auto d = static_cast<size_t>(axis); d < stats.size(); ++d) stats[d] = 1;
  for (size_t i = 0; i < statistics; ++i) require_statistic(c, 2 + i, stats);
  size_t scale = 2 + statistics;
  if (c.has(scale)) {
    require_float(c, scale, "C1");
    require_broadcasts_into(c, scale, 1, "C4");
  }
  c.output(0, c.dtype(1), x);
  for (size_t i = 1; i <= statistics; ++i)
    c.output(i, c.has(scale) ? c.dtype(scale) : c.dtype(1), Shape(x.begin() + axis, x.end()));
}
void infer_layer_norm_backward(InferContext& c) {
  infer_tail(c, 2);
}
void infer_rms_norm_backward(InferContext& c) {
  infer_tail(c, 1);
}

// (g, x, scale[C], mean, rstd): dx, dscale[C], dbias[C].
void infer_channels(InferContext& c, const Shape& stats) {
  c.require(c.rank(2) == 1, kShape, "C4", cat("needs scale[C], not ", cat(c.shape(2))));
  require_float(c, 2, "C1");
  c.same(c.shape(2)[0], c.rank(1) >= 2 ? c.shape(1)[1] : Dim(1), "C4");
  for (size_t i : {3, 4}) require_statistic(c, i, stats);
  c.output(0, c.dtype(1), c.shape(1));
  for (size_t i : {1, 2}) c.output(i, c.dtype(2), c.shape(2));
}
void infer_batch_norm_backward(InferContext& c) {
  require_pair(c);
  c.require(c.rank(1) >= 1, kShape, "C2", "needs [N, C, ...], not a scalar");
  infer_channels(c, {c.rank(1) >= 2 ? c.shape(1)[1] : Dim(1)});
}
void infer_group_norm_backward(InferContext& c) {
  require_pair(c);
  c.require(c.rank(1) >= 2, kShape, "C2", cat("needs [N, C, ...], not ", cat(c.shape(1))));
  int64_t groups = c.node.get_int("groups");
  c.require(groups >= 1 && divisible_by(c.shape(1)[1], groups, c.ranges()) != Tri::no, kShape, "C5",
            cat("cannot split ", c.shape(1)[1].str(), " channels into ", groups, " groups"));
  infer_channels(c, {c.shape(1)[0], Dim(groups)});
}

double backward_flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>&) {
  return 11 * static_cast<double>(element_count(in[1]));
}

OpDef backward(std::string_view name, int min_inputs, int max_inputs, int min_outputs, int max_outputs,
               std::vector<AttrDef> attrs, void (*infer)(InferContext&), void (*eval)(EvalContext&),
               std::vector<ValueId> (*decompose)(Builder&, const Node&)) {
  OpDef row;
  row.name = name;
  row.family = Family::composite;
  row.min_inputs = min_inputs;
  row.max_inputs = max_inputs;
  row.min_outputs = min_outputs;
  row.max_outputs = max_outputs;
  row.attrs = std::move(attrs);
  row.constraints = {"C1: floats; gradient and x of one type, statistics of f32 (f64 for f64)",
                     "C2: the gradient has the shape of x", "C3: statistics as the normalisation yields them",
                     "C4: the scale fits x"};
  row.infer = infer;
  row.eval = eval;
  row.decompose = decompose;
  row.flops = backward_flops;
  row.precision = Precision::sensitive;
  return row;
}

}  // namespace

void add_norm_backward(OpRows& rows) {
  const AttrDef axis{"axis", AttrKind::integer, Attr(int64_t{-1})};
  rows.push_back(backward("layer_norm_backward", 4, 5, 1, 3, {axis}, infer_layer_norm_backward,
                          eval_layer_norm_backward, decompose_layer_norm_backward));
  rows.push_back(backward("rms_norm_backward", 3, 4, 1, 2, {axis}, infer_rms_norm_backward,
                          eval_rms_norm_backward, decompose_rms_norm_backward));
  rows.push_back(backward("batch_norm_backward", 5, 5, 1, 3, {}, infer_batch_norm_backward,
                          eval_batch_norm_backward, decompose_batch_norm_backward));
  rows.back().layout = LayoutFreedom::channels;
  rows.push_back(backward("group_norm_backward", 5, 5, 1, 3, {{"groups", AttrKind::integer, {}}},
                          infer_group_norm_backward, eval_group_norm_backward,
                          decompose_group_norm_backward));
  rows.back().constraints.push_back("C5: groups divides the channels");
}

}  // namespace pelton::ir
