// SPDX-License-Identifier: Apache-2.0
#include "ir/builder.h"
#include "ops/harness_composites.h"

namespace pelton::test {

using namespace pelton::ir;

namespace {

// g, x, statistics (of f32 or wider), [scale].
Instance tail_backward(Draw& d, DType t, size_t statistics) {
  Instance i = norm_tail(d, t, 0, statistics + 1);
  Dims dims = i.inputs[0].dims(), stats = dims;
  auto axis = static_cast<std::ptrdiff_t>(std::get<int64_t>(i.attrs["axis"]));
  for (auto k = static_cast<size_t>(axis); k < stats.size(); ++k) stats[k] = 1;
  i.attrs.erase("eps");
  i.inputs.push_back(d.normal(t, dims));
  for (size_t k = 0; k < statistics; ++k) i.inputs.push_back(d.uniform(t, stats, 0.2, 2));
  i.inputs.push_back(maybe(d, d.normal(t, Dims(dims.begin() + axis, dims.end()))));
  return i;
}
Instance channels_backward(Draw& d, DType t, bool groups) {
  Instance i = groups ? group_norm(d, t) : channels(d, t, 1, 3, 1);
  Dims dims = i.inputs[0].dims(), stats{dims[1]};
  i.attrs.erase("eps");
  if (groups) stats = {dims[0], std::get<int64_t>(i.attrs["groups"])};
  i.inputs = {d.normal(t, dims), d.normal(t, dims), d.normal(t, {dims[1]}), d.normal(t, stats),
              d.uniform(t, stats, 0.2, 2)};
  return i;
}
Instance loss_backward(Draw& d, DType t) {
  Instance i = loss(d, t, 1);
  Dims places = i.inputs[1].dims();
  bool none = std::get<std::string>(i.attrs["reduction"]) == "none";
  i.inputs = {d.normal(t, none ? places : Dims{}), i.inputs[0], i.inputs[1], d.normal(t, places),
              i.inputs[2]};
  return i;
}
Instance attention_backward(Draw& d, DType t) {
  Instance i = attention(d, t);
  Dims q = i.inputs[0].dims(), y{q[0], q[1], q[2], i.inputs[2].dims()[3]};
  Tensor mask = i.inputs.size() > 3 ? i.inputs[3] : Tensor();
  i.inputs = {d.normal(t, y),
              i.inputs[0],
              i.inputs[1],
              i.inputs[2],
              d.normal(t, y),
              d.uniform(t, {q[0], q[1], q[2]}, 1, 3),
              mask};
  i.outputs = 3;
  return i;
}
Instance pool_backward(Draw& d, DType t) {
  int64_t rows = 3 + d.below(4), columns = 3 + d.below(4), stride = 1 + d.below(2), pad = d.below(2);
  Dims x{d.size(), d.size(1), rows, columns},
      g{x[0], x[1], (rows + pad - 2) / stride + 1, (columns - 3) / stride + 1};
  return {{d.normal(t, g), d.normal(t, x)},
          {{"kernel", Ints{2, 3}}, {"strides", Ints{stride, stride}}, {"low", Shape{pad, 0}}}};
}

Instance avg_pool_backward(Draw& d, DType t) {
  Instance i = pool_backward(d, t);
  i.attrs["dims"] = to_shape(i.inputs[1].dims());
  i.attrs["count_padding"] = d.coin();
  i.inputs.pop_back();
  return i;
}
// g and, for the data's gradient, w, else x.
Instance conv_backward(Draw& d, DType t, bool data) {
  int64_t groups = 1 + d.below(2), spatial = 1 + d.below(2);
  Dims x{1 + d.below(2), groups * (1 + d.below(2))}, w{groups * (1 + d.below(3)), x[1] / groups},
      g{x[0], w[0]};
  Ints strides, dilations, kernel;
  Shape low, high;
  for (int64_t k = 0; k < spatial; ++k) {
    strides.push_back(1 + d.below(3));
    dilations.push_back(1 + d.below(2));
    kernel.push_back(1 + d.below(3));
    low.emplace_back(d.below(2));
    high.emplace_back(d.below(3));
    int64_t extent = (kernel.back() - 1) * dilations.back() + 1;
    x.push_back(extent + d.below(5));
    w.push_back(kernel.back());
    g.push_back((x.back() + low.back().value() + high.back().value() - extent) / strides.back() + 1);
  }
  Instance i{
      {d.normal(t, g), d.normal(t, data ? w : x)},
      {{"strides", strides}, {"dilations", dilations}, {"low", low}, {"high", high}, {"groups", groups}}};
  if (data)
    i.attrs["dims"] = to_shape(x);
  else
    i.attrs["kernel"] = kernel;
  return i;
}

}  // namespace

std::optional<Instance> draw_backward(std::string_view op, Draw& d, DType t) {
  if (op == "layer_norm_backward") return tail_backward(d, t, 2);
  if (op == "rms_norm_backward") return tail_backward(d, t, 1);
  if (op == "batch_norm_backward") return channels_backward(d, t, false);
  if (op == "group_norm_backward") return channels_backward(d, t, true);
  if (op == "cross_entropy_backward") return loss_backward(d, t);
  if (op == "attention_backward") return attention_backward(d, t);
  if (op == "max_pool_backward") return pool_backward(d, t);
  if (op == "avg_pool_backward") return avg_pool_backward(d, t);
  if (op == "conv_backward_data") return conv_backward(d, t, true);
  if (op == "conv_backward_weights") return conv_backward(d, t, false);
  return std::nullopt;
}

}  // namespace pelton::test
