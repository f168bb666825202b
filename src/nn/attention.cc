// SPDX-License-Identifier: Apache-2.0
// Attention. The heads are split off the model width: [N, L, D] -> [N, H, L, D/H].
#include <cmath>

#include "nn/layers.h"

namespace pelton::nn {

namespace {

ValueId split_heads(Builder& b, ValueId x, int64_t heads) {
  const Shape s = b.shape(x);
  if (!s[2].is_const() || s[2].value() % heads)
    fail(ErrorCode::bad_shape, cat(heads, " heads do not divide the width ", s[2].str()), b.node_name());
  return b.transpose(b.reshape(x, {s[0], s[1], heads, s[2].value() / heads}), {0, 2, 1, 3});
}

ValueId columns(Builder& b, ValueId x, int64_t start, int64_t size) {
  return b.op(
      "slice", {x},
      {{"axes", Ints{b.rank(x) - 1}}, {"starts", Shape{start}}, {"sizes", Shape{size}}, {"steps", Ints{1}}});
}

}  // namespace

ValueId attend(Net& net, ValueId q, ValueId k, ValueId v, const AttentionOptions& o) {
  Builder& b = net.builder();
  b.set_name(net.path("attention"));
  const Shape shape = b.shape(q);
  q = split_heads(b, q, o.heads);
  k = split_heads(b, k, o.heads);
  v = split_heads(b, v, o.heads);
  ValueId y;
  if (net.training() && o.dropout > 0) {
    // Weights must be seen one by one to drop some, so the composite does not serve.
    double scale = 1 / std::sqrt(static_cast<double>(b.shape(q)[3].value()));
    ValueId scores = b.mul(b.op("matmul", {q, k}, {{"transpose_b", true}}), b.like(q, scale));
    if (o.causal) {
      Shape square{b.shape(q)[2], b.shape(k)[2]};
      ValueId row = b.op("iota", {}, {{"dims", square}, {"axis", int64_t{0}}, {"dtype", DType::i64}});
      ValueId column = b.op("iota", {}, {{"dims", square}, {"axis", int64_t{1}}, {"dtype", DType::i64}});
      scores = b.select(b.op("le", {column, row}), scores, b.like(scores, lowest(b.dtype(scores))));
    }
    if (o.mask) scores = b.add(scores, o.mask);
    y = b.matmul(dropout(net, b.op("softmax", {scores}, {{"axis", int64_t{-1}}}), o.dropout), v);
  } else {
    std::vector<ValueId> inputs{q, k, v};
    if (o.mask) inputs.push_back(o.mask);
    y = b.ops("attention", inputs, {{"causal", o.causal}}, 1)[0];
  }
  return b.reshape(b.transpose(y, {0, 2, 1, 3}), shape);
}

ValueId multihead_attention(Net& net, std::string_view name, ValueId x, const AttentionOptions& o) {
  auto at = net.scope(name);
  Builder& b = net.builder();
  b.set_name(net.path(""));
  const Shape shape = b.shape(x);
  int64_t width = shape[2].value();
  Dims in{3 * width, width};
  ValueId w = net.parameter("in_proj_weight", in, xavier_uniform(in));
  ValueId bias = net.parameter("in_proj_bias", {3 * width}, Init::zeros());
  ValueId rows = b.reshape(x, {shape[0] * shape[1], width});
  ValueId all = b.add(b.op("matmul", {rows, w}, {{"transpose_b", true}}), bias);
  all = b.reshape(all, {shape[0], shape[1], 3 * width});
  ValueId y = attend(net, columns(b, all, 0, width), columns(b, all, width, width),
                     columns(b, all, 2 * width, width), o);
  return linear(net, "out_proj", y, width, {.bias_init = Init::zeros()});
}

}  // namespace pelton::nn
