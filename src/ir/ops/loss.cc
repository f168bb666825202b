// SPDX-License-Identifier: Apache-2.0
// Losses over classes. logits or log-probabilities x[N,C,S...], labels[N,S...], weights[C].
#include <cmath>

#include "ir/ops/composite.h"
#include "ir/ops/lanes.h"
#include "ir/ops/loss.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;

void infer_loss(InferContext& c) {
  require_float(c, 0, "C1");
  c.require(is_int(c.dtype(1)), ErrorCode::bad_type, "C1",
            cat("needs integer labels, not ", name(c.dtype(1))));
  const Shape& x = c.shape(0);
  c.require(x.size() >= 2, kShape, "C2", cat("needs [N,C,...], not ", cat(x)));
  Shape labels = x;
  labels.erase(labels.begin() + 1);
  c.require(c.shape(1).size() == labels.size(), kShape, "C2",
            cat("needs labels of shape ", cat(labels), ", not ", cat(c.shape(1))));
  for (size_t d = 0; d < labels.size(); ++d) labels[d] = c.same(labels[d], c.shape(1)[d], "C2");
  if (c.has(2)) {
    require_same_type(c, 0, 2, "C1");
    c.require(c.rank(2) == 1, kShape, "C2", cat("needs weights[C], not ", cat(c.shape(2))));
    c.same(c.shape(2)[0], x[1], "C2");
  }
  const std::string& reduction = c.node.get_text("reduction");
  c.require(reduction == "none" || reduction == "sum" || reduction == "mean", ErrorCode::usage, "C3",
            cat("has no reduction '", reduction, "'"));
  c.output(0, c.dtype(0), reduction == "none" ? labels : Shape{});
  c.output(1, wide_type(c.dtype(0)), labels);
}

// loss = -weight[label] * log p[label]; labels equal to `ignore` count nothing. The mean is over the weights
// that count. Result 1 of cross_entropy: log of the sum of exponentials at each place.
void evaluate(EvalContext& c, bool from_logits) {
  const Tensor &x = c.in(0), &labels = c.in(1);
  std::vector<double> v = to_doubles(x), weights = doubles_or(c, 2, x.dims()[1], 1);
  int64_t ignore = c.node.get_int("ignore");
  Lanes lanes(x.dims(), 1, 2);
  std::vector<double> losses(static_cast<size_t>(labels.count())), lse(losses.size());
  double sum = 0, counted = 0;
  lanes.for_each([&](size_t at, size_t place) {
    auto step = static_cast<size_t>(lanes.inner);
    double top = -INFINITY, total = 0;
    for (int64_t k = 0; k < lanes.size; ++k) top = std::max(top, v[at + static_cast<size_t>(k) * step]);
    for (int64_t k = 0; k < lanes.size; ++k) total += std::exp(v[at + static_cast<size_t>(k) * step] - top);
    lse[place] = top + std::log(total);
    int64_t label = labels.get_int(static_cast<int64_t>(place));
    if (label == ignore) return;
    if (label < 0 || label >= lanes.size)
      c.refuse(kShape, cat("has label ", label, " among ", lanes.size, " classes"));
    double log_p = v[at + static_cast<size_t>(label) * step] - (from_logits ? lse[place] : 0);
    double weight = weights[static_cast<size_t>(label)];
    losses[place] = -weight * log_p;
    sum += losses[place];
    counted += weight;
  });
  const std::string& reduction = c.node.get_text("reduction");
  DType t = x.dtype();
  if (reduction == "none")
    c.out(0, from_doubles(t, labels.dims(), losses));
  else
    c.out(0, Tensor::full(t, {}, reduction == "sum" ? sum : sum / counted));
  c.out(1, from_doubles(wide_type(t), labels.dims(), lse));
}
void eval_cross_entropy(EvalContext& c) {
  evaluate(c, true);
}
void eval_nll_loss(EvalContext& c) {
  evaluate(c, false);
}

double loss_flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>&) {
  return 4 * static_cast<double>(element_count(in[0]));
}

OpDef loss(std::string_view name, int max_outputs, void (*eval)(EvalContext&),
           std::vector<ValueId> (*decompose)(Builder&, const Node&)) {
  OpDef row;
  row.name = name;
  row.family = Family::composite;
  row.min_inputs = 2;
  row.max_inputs = 3;
  row.max_outputs = max_outputs;
  row.attrs = {{"reduction", AttrKind::text, Attr(std::string("mean"))},
               {"ignore", AttrKind::integer, Attr(int64_t{INT64_MIN})}};
  row.constraints = {"C1: floats, integer labels", "C2: x[N,C,S...], labels[N,S...], weights[C]",
                     "C3: the reduction is none, sum or mean"};
  row.infer = infer_loss;
  row.eval = eval;
  row.flops = loss_flops;
  row.decompose = decompose;
  row.precision = Precision::sensitive;
  return row;
}

}  // namespace

void add_loss(OpRows& rows) {
  rows.push_back(loss("cross_entropy", 2, eval_cross_entropy, decompose_cross_entropy));
  rows.push_back(loss("nll_loss", 1, eval_nll_loss, decompose_nll_loss));
}

}  // namespace pelton::ir
