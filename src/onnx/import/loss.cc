// SPDX-License-Identifier: Apache-2.0
// Losses over logits[N,C,S...] and labels[N,S...], built from primitives.
#include "onnx/import/helpers.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

// -w[label] * p[n, label, s...], summed or averaged over the weights that count.
ValueId nll(NodeContext& c, ValueId log_p, ValueId labels, ValueId weights) {
  std::string reduction = c.get_text("reduction", "mean");
  if (reduction != "none" && reduction != "sum" && reduction != "mean")
    c.refuse(ErrorCode::bad_format, cat("reduction \"", reduction, "\" is not known"));
  DType t = c.b.dtype(log_p);
  if (c.b.rank(log_p) != c.b.rank(labels) + 1 || c.b.rank(labels) < 1)
    c.refuse(ErrorCode::bad_shape,
             cat("has labels ", c.b.type(labels).str(), " for ", c.b.type(log_p).str()));
  labels = c.b.cast(labels, DType::i64);
  ValueId counts;  // weight of each label; none: all 1
  ValueId safe = labels;
  if (c.has_attr("ignore_index")) {
    ValueId ignored =
        c.b.op("eq", {labels, c.b.scalar(DType::i64, static_cast<double>(c.get_int("ignore_index", 0)))});
    safe = c.b.select(ignored, c.b.scalar(DType::i64, 0), labels);
    counts = c.b.cast(c.b.op("not", {ignored}), t);
  }
  ValueId picked = c.b.op("gather_elements", {log_p, c.b.unsqueeze(safe, {1})}, {{"axis", int64_t{1}}});
  ValueId loss = c.b.op("neg", {c.b.reshape(picked, c.b.shape(labels))});
  if (weights) {
    ValueId w = c.b.op("gather", {c.b.cast(weights, t), safe}, {{"axis", int64_t{0}}});
    counts = counts ? c.b.mul(counts, w) : w;
  }
  if (counts) loss = c.b.mul(loss, counts);
  if (reduction == "none") return loss;
  Ints all;
  for (int64_t i = 0; i < c.b.rank(loss); ++i) all.push_back(i);
  if (reduction == "sum") return reduce(c, "reduce_sum", loss, all, false);
  if (!counts) return reduce(c, "reduce_mean", loss, all, false);
  return c.b.div(reduce(c, "reduce_sum", loss, all, false), reduce(c, "reduce_sum", counts, all, false));
}

void nll_loss(NodeContext& c) {
  c.out(0, nll(c, c.in(0), c.in(1), c.opt(2)));
}

void softmax_cross_entropy(NodeContext& c) {
  ValueId log_p = c.b.op("log_softmax", {c.in(0)}, {{"axis", int64_t{1}}});
  c.out(0, nll(c, log_p, c.in(1), c.opt(2)));
  if (c.wants(1)) c.out(1, log_p);
}

}  // namespace

void add_loss(ImportTable& table) {
  table.add("NegativeLogLikelihoodLoss", nll_loss);
  table.add("SoftmaxCrossEntropyLoss", softmax_cross_entropy);
}

}  // namespace pelton::onnx
