// SPDX-License-Identifier: Apache-2.0
// Normalisations: rows and inference. Evaluation in norm_eval.cc, decompositions in norm_decompose.cc.
#include "ir/ops/norm.h"

#include "ir/ops/composite.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;

void infer_softmax(InferContext& c) {
  require_float(c, 0, "C1");
  c.axis(c.node.get_int("axis"), c.rank(0));
  c.output(0, c.dtype(0), c.shape(0));
}

// Statistics: the shape of x with size 1 from `axis` on.
void output_statistics(InferContext& c, int64_t axis, size_t first, size_t last) {
  Shape stats = c.shape(0);
  for (auto d = static_cast<size_t>(axis); d < stats.size(); ++d) stats[d] = 1;
  for (size_t i = first; i <= last; ++i) c.output(i, wide_type(c.dtype(0)), stats);
}

void infer_layer_norm(InferContext& c) {
  require_float(c, 0, "C1");
  int64_t axis = c.axis(c.node.get_int("axis"), c.rank(0));
  for (size_t i = 1; i < c.input_count(); ++i)
    if (c.has(i)) {
      require_float(c, i, "C1");
      require_broadcasts_into(c, i, 0, "C2");
    }
  c.output(0, c.dtype(0), c.shape(0));
  output_statistics(c, axis, 1, 2);
}
void infer_rms_norm(InferContext& c) {
  require_float(c, 0, "C1");
  int64_t axis = c.axis(c.node.get_int("axis"), c.rank(0));
  if (c.has(1)) {
    require_float(c, 1, "C1");
    require_broadcasts_into(c, 1, 0, "C2");
  }
  c.output(0, c.dtype(0), c.shape(0));
  output_statistics(c, axis, 1, 1);
}

// Per-channel operands of inputs [1, count): [C], where x is [N, C, S...] or, with one channel, [N].
Dim require_channels(InferContext& c, size_t count) {
  require_float(c, 0, "C1");
  c.require(c.rank(0) >= 1, kShape, "C2", cat("needs [N, C, ...], not a scalar"));
  Dim channels = c.rank(0) >= 2 ? c.shape(0)[1] : Dim(1);
  for (size_t i = 1; i < count; ++i) {
    require_float(c, i, "C1");
    c.require(c.rank(i) == 1, kShape, "C2",
              cat("needs one value a channel as input ", i, ", not ", cat(c.shape(i))));
    c.same(c.shape(i)[0], channels, "C2");
  }
  return channels;
}
void infer_batch_norm(InferContext& c) {
  require_channels(c, 5);
  c.output(0, c.dtype(0), c.shape(0));
}
void infer_batch_norm_train(InferContext& c) {
  Dim channels = require_channels(c, 5);
  c.output(0, c.dtype(0), c.shape(0));
  c.output(1, c.dtype(3), {channels});
  c.output(2, c.dtype(4), {channels});
  for (size_t i : {3, 4}) c.output(i, wide_type(c.dtype(0)), {channels});
}

void infer_group_norm(InferContext& c) {
  c.require(c.rank(0) >= 2, kShape, "C2", cat("needs [N, C, ...], not ", cat(c.shape(0))));
  Dim channels = require_channels(c, 3);
  int64_t groups = c.node.get_int("groups");
  c.require(groups >= 1, ErrorCode::usage, "C3", cat("has ", groups, " groups"));
  c.require(divisible_by(channels, groups, c.ranges()) != Tri::no, kShape, "C3",
            cat("cannot split ", channels.str(), " channels into ", groups, " groups"));
  c.output(0, c.dtype(0), c.shape(0));
  for (size_t i : {1, 2}) c.output(i, wide_type(c.dtype(0)), {c.shape(0)[0], Dim(groups)});
}

void infer_lrn(InferContext& c) {
  require_float(c, 0, "C1");
  c.require(c.rank(0) >= 2, kShape, "C2", cat("needs [N, C, ...], not ", cat(c.shape(0))));
  c.require(c.node.get_int("size") >= 1, ErrorCode::usage, "C3", cat("has size ", c.node.get_int("size")));
  c.output(0, c.dtype(0), c.shape(0));
}
void infer_lp_norm(InferContext& c) {
  require_float(c, 0, "C1");
  c.axis(c.node.get_int("axis"), c.rank(0));
  int64_t p = c.node.get_int("p");
  c.require(p == 1 || p == 2, ErrorCode::usage, "C2", cat("has p ", p, ", only 1 and 2 exist"));
  c.output(0, c.dtype(0), c.shape(0));
}

template <int per_element>
double norm_flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>&) {
  return per_element * static_cast<double>(element_count(in[0]));
}
double lrn_flops(const Graph&, const Node& n, const std::vector<Dims>& in, const std::vector<Dims>&) {
  return static_cast<double>(n.get_int("size") + 4) * static_cast<double>(element_count(in[0]));
}

OpDef norm(std::string_view name, int min_inputs, int max_inputs, int max_outputs, std::vector<AttrDef> attrs,
           void (*infer)(InferContext&), void (*eval)(EvalContext&),
           std::vector<ValueId> (*decompose)(Builder&, const Node&),
           std::vector<std::string_view> constraints) {
  OpDef row;
  row.name = name;
  row.family = Family::composite;
  row.min_inputs = min_inputs;
  row.max_inputs = max_inputs;
  row.max_outputs = max_outputs;
  row.attrs = std::move(attrs);
  row.constraints = std::move(constraints);
  row.infer = infer;
  row.eval = eval;
  row.decompose = decompose;
  row.flops = norm_flops<6>;
  row.precision = Precision::sensitive;
  row.alias = AliasRule::in_place;
  return row;
}
AttrDef axis_def(int64_t value) {
  return {"axis", AttrKind::integer, Attr(value)};
}
AttrDef eps_def() {
  return {"eps", AttrKind::real, Attr(1e-5)};
}

}  // namespace

void add_norm(OpRows& rows) {
  constexpr std::string_view floats = "C1: operands are f64, f32, f16 or bf16";
  constexpr std::string_view channels = "C2: x is [N, C, ...] and the parameters [C]";
  rows.push_back(
      norm("softmax", 1, 1, 1, {axis_def(-1)}, infer_softmax, eval_softmax, decompose_softmax, {floats}));
  rows.push_back(norm("log_softmax", 1, 1, 1, {axis_def(-1)}, infer_softmax, eval_log_softmax,
                      decompose_log_softmax, {floats}));
  rows.push_back(norm("layer_norm", 1, 3, 3, {axis_def(-1), eps_def()}, infer_layer_norm, eval_layer_norm,
                      decompose_layer_norm, {floats, "C2: scale and bias broadcast to x"}));
  rows.push_back(norm("rms_norm", 1, 2, 2, {axis_def(-1), eps_def()}, infer_rms_norm, eval_rms_norm,
                      decompose_rms_norm, {floats, "C2: scale broadcasts to x"}));
  rows.push_back(norm("batch_norm", 5, 5, 1, {eps_def()}, infer_batch_norm, eval_batch_norm,
                      decompose_batch_norm, {floats, channels}));
  rows.back().precision = Precision::follows;
  rows.back().layout = LayoutFreedom::channels;
  rows.push_back(norm("batch_norm_train", 5, 5, 5, {eps_def(), {"momentum", AttrKind::real, Attr(0.9)}},
                      infer_batch_norm_train, eval_batch_norm_train, decompose_batch_norm_train,
                      {floats, channels}));
  rows.back().min_outputs = 3;
  rows.back().layout = LayoutFreedom::channels;
  rows.push_back(norm("group_norm", 3, 3, 3, {{"groups", AttrKind::integer, {}}, eps_def()}, infer_group_norm,
                      eval_group_norm, decompose_group_norm,
                      {floats, channels, "C3: groups divides the channels"}));
  rows.back().layout = LayoutFreedom::channels;
  rows.push_back(norm("lrn", 1, 1, 1,
                      {{"size", AttrKind::integer, {}},
                       {"alpha", AttrKind::real, Attr(1e-4)},
                       {"beta", AttrKind::real, Attr(0.75)},
                       {"bias", AttrKind::real, Attr(1.0)}},
                      infer_lrn, eval_lrn, decompose_lrn,
                      {floats, "C2: x is [N, C, ...]", "C3: size is 1 or more"}));
  rows.back().flops = lrn_flops;
  rows.back().layout = LayoutFreedom::channels;
  rows.push_back(norm("lp_norm", 1, 1, 1, {axis_def(-1), {"p", AttrKind::integer, Attr(int64_t{2})}},
                      infer_lp_norm, eval_lp_norm, decompose_lp_norm, {floats, "C2: p is 1 or 2"}));
}

}  // namespace pelton::ir
