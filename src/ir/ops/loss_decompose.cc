// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/loss.h"

#include "ir/ops/composite.h"

namespace pelton::ir {
namespace {

using Values = std::vector<ValueId>;

// The loss from log-probabilities [N,C,S...] in the type sums are made in.
ValueId from_log_probabilities(Builder& b, const Node& n, ValueId log_p) {
  ValueId labels = b.cast(n.inputs[1], DType::i64);
  Shape places = b.shape(labels);
  int64_t ignore = n.get_int("ignore");
  ValueId ignored;
  if (ignore != INT64_MIN) {
    ignored = b.op("eq", {labels, b.constant(Tensor::scalar<int64_t>(ignore))});
    labels = b.select(ignored, b.constant(Tensor::scalar<int64_t>(0)), labels);
  }
  ValueId picked = b.op("gather_elements", {log_p, b.unsqueeze(labels, {1})}, {{"axis", int64_t{1}}});
  ValueId loss = b.op("neg", {b.reshape(picked, places)}), weight;
  if (n.inputs.size() > 2 && n.inputs[2])
    weight = b.op("gather", {b.cast(n.inputs[2], b.dtype(loss)), labels}, {{"axis", int64_t{0}}});
  else
    weight = b.op("fill", {b.like(loss, 1)}, {{"dims", places}});
  if (ignored) weight = b.select(ignored, b.like(weight, 0), weight);
  // A place that does not count must not spoil the sum with an infinity.
  loss = b.mul(loss, weight);
  if (ignored) loss = b.select(ignored, b.like(loss, 0), loss);
  const std::string& reduction = n.get_text("reduction");
  if (reduction == "none") return loss;
  Ints all = axis_range(0, b.rank(loss));
  ValueId sum = b.reduce("reduce_sum", loss, all, false);
  return reduction == "sum" ? sum : b.div(sum, b.reduce("reduce_sum", weight, all, false));
}

}  // namespace

Values decompose_cross_entropy(Builder& b, const Node& n) {
  ValueId x = b.cast(n.inputs[0], wide_type(b.dtype(n.inputs[0])));
  ValueId top = b.reduce("reduce_max", x, {1}, true);
  ValueId shifted = b.sub(x, top);
  ValueId log_sum = b.op("log", {b.reduce("reduce_sum", b.op("exp", {shifted}), {1}, true)});
  ValueId loss = from_log_probabilities(b, n, b.sub(shifted, log_sum));
  Values out{b.cast(loss, b.dtype(n.inputs[0]))};
  if (n.outputs.size() > 1) out.push_back(b.reshape(b.add(top, log_sum), b.shape(n.inputs[1])));
  return out;
}

Values decompose_nll_loss(Builder& b, const Node& n) {
  ValueId x = b.cast(n.inputs[0], wide_type(b.dtype(n.inputs[0])));
  return {b.cast(from_log_probabilities(b, n, x), b.dtype(n.inputs[0]))};
}

}  // namespace pelton::ir
