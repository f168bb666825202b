// SPDX-License-Identifier: Apache-2.0
// The gradient of cross entropy from the log-sum-exp of its training form, so that no softmax is stored:
// (exp(x - lse) - [class is label]) * weight[label] * g, ignored places 0; the mean divides by the weights
// that count. x[N,C,S...], labels and lse [N,S...], weights[C], g as the loss.
#include <cmath>

#include "ir/ops/composite.h"
#include "ir/ops/gradients.h"
#include "ir/ops/lanes.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;
using Values = std::vector<ValueId>;

// Inputs: g, x, labels, lse, [weights].
void infer_cross_entropy_backward(InferContext& c) {
  for (size_t i : {0, 1, 3}) require_float(c, i, "C1");
  require_same_type(c, 0, 1, "C1");
  c.require(is_int(c.dtype(2)), ErrorCode::bad_type, "C1",
            cat("needs integer labels, not ", name(c.dtype(2))));
  const Shape& x = c.shape(1);
  c.require(x.size() >= 2, kShape, "C2", cat("needs [N,C,...], not ", cat(x)));
  Shape places = x;
  places.erase(places.begin() + 1);
  const std::string& reduction = c.node.get_text("reduction");
  c.require(reduction == "none" || reduction == "sum" || reduction == "mean", ErrorCode::usage, "C3",
            cat("has no reduction '", reduction, "'"));
  for (size_t i : {0, 2, 3}) {
    if (i == 0 && reduction != "none") {
      require_single(c, 0, "C2");
      continue;
    }
    c.require(c.shape(i).size() == places.size(), kShape, "C2",
              cat("needs input ", i, " of shape ", cat(places), ", not ", cat(c.shape(i))));
    for (size_t d = 0; d < places.size(); ++d) c.same(c.shape(i)[d], places[d], "C2");
  }
  if (c.has(4)) {
    require_same_type(c, 1, 4, "C1");
    c.require(c.rank(4) == 1, kShape, "C2", cat("needs weights[C], not ", cat(c.shape(4))));
    c.same(c.shape(4)[0], x[1], "C2");
  }
  c.output(0, c.dtype(1), x);
}

void eval_cross_entropy_backward(EvalContext& c) {
  const Tensor &x = c.in(1), &labels = c.in(2);
  std::vector<double> g = to_doubles(c.in(0)), v = to_doubles(x), lse = to_doubles(c.in(3)),
                      weights = doubles_or(c, 4, x.dims()[1], 1);
  int64_t ignore = c.node.get_int("ignore");
  const std::string& reduction = c.node.get_text("reduction");
  Lanes lanes(x.dims(), 1, 2);
  auto step = static_cast<size_t>(lanes.inner);
  std::vector<double> factor(lse.size());
  double counted = 0;
  for (size_t place = 0; place < factor.size(); ++place) {
    int64_t label = labels.get_int(static_cast<int64_t>(place));
    if (label == ignore) continue;
    if (label < 0 || label >= lanes.size)
      c.refuse(kShape, cat("has label ", label, " among ", lanes.size, " classes"));
    factor[place] = weights[static_cast<size_t>(label)];
    counted += factor[place];
  }
  for (size_t place = 0; place < factor.size(); ++place)
    factor[place] *= reduction == "none" ? g[place] : reduction == "sum" ? g[0] : g[0] / counted;
  lanes.for_each([&](size_t at, size_t place) {
    int64_t label = labels.get_int(static_cast<int64_t>(place));
    for (int64_t k = 0; k < lanes.size; ++k) {
      double& e = v[at + static_cast<size_t>(k) * step];
      e = label == ignore ? 0 : (std::exp(e - lse[place]) - (k == label)) * factor[place];
    }
  });
  c.out(0, from_doubles(x.dtype(), x.dims(), v));
}

Values decompose_cross_entropy_backward(Builder& b, const Node& n) {
  ValueId x = n.inputs[1];
  DType t = b.dtype(x), wide = wide_type(t);
  const Shape shape = b.shape(x), places = b.shape(n.inputs[2]);
  ValueId labels = b.cast(n.inputs[2], DType::i64), ignored;
  if (int64_t ignore = n.get_int("ignore"); ignore != INT64_MIN) {
    ignored = b.op("eq", {labels, b.constant(Tensor::scalar<int64_t>(ignore))});
    labels = b.select(ignored, b.constant(Tensor::scalar<int64_t>(0)), labels);
  }
  ValueId weight;
  if (n.inputs.size() > 4 && n.inputs[4])
    weight = b.op("gather", {b.cast(n.inputs[4], wide), labels}, {{"axis", int64_t{0}}});
  else
    weight = b.op("fill", {b.scalar(wide, 1)}, {{"dims", places}});
  if (ignored) weight = b.select(ignored, b.scalar(wide, 0), weight);
  ValueId g = b.cast(n.inputs[0], wide);
  const std::string& reduction = n.get_text("reduction");
  if (reduction != "none") g = b.reshape(g, {});
  if (reduction == "mean") g = b.div(g, b.reduce("reduce_sum", weight, axis_range(0, b.rank(weight)), false));
  ValueId factor = b.unsqueeze(b.mul(g, weight), {1});
  ValueId p = b.op("exp", {b.sub(b.cast(x, wide), b.unsqueeze(b.cast(n.inputs[3], wide), {1}))});
  Shape classes(shape.size(), Dim(1));
  classes[1] = shape[1];
  ValueId k = b.op("iota", {}, {{"dims", classes}, {"axis", int64_t{1}}, {"dtype", DType::i64}});
  ValueId hit = b.cast(b.op("eq", {k, b.unsqueeze(labels, {1})}), wide);
  ValueId dx = b.mul(b.sub(p, hit), factor);
  // A place that does not count must not spoil its gradient with an infinity.
  if (ignored) dx = b.select(b.unsqueeze(ignored, {1}), b.scalar(wide, 0), dx);
  return {b.cast(dx, t)};
}

double flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>&) {
  return 4 * static_cast<double>(element_count(in[1]));
}

void cross_entropy(GradientContext& c) {
  if (c.grad(1) || c.wants(2)) return c.use_decomposition();
  c.set(0,
        c.b.op("cross_entropy_backward", {c.grad(), c.in(0), c.in(1), c.result(1), c.in(2)}, c.node.attrs));
}

}  // namespace

void add_loss_backward(OpRows& rows) {
  OpDef row;
  row.name = "cross_entropy_backward";
  row.family = Family::composite;
  row.min_inputs = 4;
  row.max_inputs = 5;
  row.attrs = {{"reduction", AttrKind::text, Attr(std::string("mean"))},
               {"ignore", AttrKind::integer, Attr(int64_t{INT64_MIN})}};
  row.constraints = {"C1: floats, integer labels",
                     "C2: g as the loss, x[N,C,S...], labels and lse [N,S...], weights[C]",
                     "C3: the reduction is none, sum or mean"};
  row.infer = infer_cross_entropy_backward;
  row.eval = eval_cross_entropy_backward;
  row.decompose = decompose_cross_entropy_backward;
  row.flops = flops;
  row.precision = Precision::sensitive;
  rows.push_back(std::move(row));
}

void add_loss_gradients(OpRows& rows) {
  set_gradients(rows, {{"cross_entropy", cross_entropy}});
}

}  // namespace pelton::ir
