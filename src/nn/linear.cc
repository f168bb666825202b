// SPDX-License-Identifier: Apache-2.0
// Linear layers, embedding and what drops values.
#include "nn/layers.h"

namespace pelton::nn {

namespace {

int64_t known(Net& net, const Dim& d, std::string_view what) {
  if (!d.is_const())
    fail(ErrorCode::bad_shape, cat(what, " must be known when the layer is made, but is ", d.str()),
         net.builder().node_name());
  return d.value();
}

}  // namespace

ValueId linear(Net& net, std::string_view name, ValueId x, int64_t out, const LinearOptions& o) {
  auto at = net.scope(name);
  Builder& b = net.builder();
  b.set_name(net.path(""));
  const Shape shape = b.shape(x);
  int64_t in = known(net, shape.back(), "the number of features");
  Dims like{out, in};  // the fans are those of [O, I] however the weight is stored
  Dims stored = like;
  if (o.transposed) std::swap(stored[0], stored[1]);
  ValueId w = net.parameter("weight", stored, o.weight_init.value_or(by_fan_in(like)));
  // One row a sample and position: the weight's gradient is one product, not a sum of many.
  ValueId rows = x;
  if (shape.size() > 2) {
    Dim count = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) count = count * shape[i];
    rows = b.reshape(x, {count, in});
  }
  ValueId y = b.op("matmul", {rows, w}, {{"transpose_b", !o.transposed}});
  if (o.bias) y = b.add(y, net.parameter("bias", {out}, o.bias_init.value_or(by_fan_in(like))));
  if (shape.size() <= 2) return y;
  Shape result = shape;
  result.back() = out;
  return b.reshape(y, result);
}

ValueId embedding(Net& net, std::string_view name, ValueId ids, int64_t count, int64_t width,
                  std::optional<Init> init) {
  auto at = net.scope(name);
  net.builder().set_name(net.path(""));
  ValueId table = net.parameter("weight", {count, width}, init.value_or(Init::normal(1)));
  return net.builder().op("gather", {table, ids}, {{"axis", int64_t{0}}});
}

ValueId dropout(Net& net, ValueId x, double ratio) {
  if (!net.training() || ratio <= 0) return x;
  Builder& b = net.builder();
  b.set_name(net.path("dropout"));
  return b.ops("dropout", {x, b.scalar(DType::f32, ratio)}, {}, 2)[0];
}

ValueId drop_path(Net& net, ValueId x, double ratio) {
  if (!net.training() || ratio <= 0) return x;
  Builder& b = net.builder();
  b.set_name(net.path("drop_path"));
  Shape rows(static_cast<size_t>(b.rank(x)), Dim(1));
  rows[0] = b.shape(x)[0];
  ValueId u = b.op("random_uniform", {}, {{"dims", rows}, {"dtype", DType::f32}});
  ValueId kept = b.op("ge", {u, b.scalar(DType::f32, ratio)});
  ValueId scaled = b.mul(x, b.like(x, 1 / (1 - ratio)));
  return b.select(kept, scaled, b.like(x, 0));
}

ValueId flatten(Net& net, ValueId x) {
  Builder& b = net.builder();
  const Shape shape = b.shape(x);
  Dim width = 1;
  for (size_t i = 1; i < shape.size(); ++i) width = width * shape[i];
  return b.reshape(x, {shape[0], width});
}

ValueId activation(Net& net, ValueId x, std::string_view kind) {
  Builder& b = net.builder();
  if (kind == "identity") return x;
  if (kind == "relu6") return b.op("clamp", {x, b.like(x, 0), b.like(x, 6)});
  if (kind == "gelu_tanh") return b.op("gelu", {x}, {{"tanh", true}});
  if (kind == "leaky_relu") return b.op("leaky_relu", {x}, {{"alpha", 0.01}});
  if (kind == "elu") return b.op("elu", {x}, {{"alpha", 1.0}});
  for (std::string_view plain : {"relu", "gelu", "silu", "tanh", "sigmoid", "hard_swish"})
    if (kind == plain) return b.op(kind, {x});
  fail(ErrorCode::bad_name, cat("there is no activation '", kind, "'"), net.path(""),
       "relu, relu6, gelu, gelu_tanh, silu, tanh, sigmoid, leaky_relu, elu, hard_swish or identity");
}

}  // namespace pelton::nn
