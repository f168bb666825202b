// SPDX-License-Identifier: Apache-2.0
// Convolutions, pooling and resizing of x[N, C, S...].
#include "nn/layers.h"

namespace pelton::nn {

namespace {

size_t spatial(Builder& b, ValueId x) {
  if (b.rank(x) < 3)
    fail(ErrorCode::bad_shape, cat("expected [N, C, S...], got ", b.type(x).str()), b.node_name());
  return static_cast<size_t>(b.rank(x) - 2);
}

// One entry an axis.
Ints spread(const Ints& list, size_t axes, int64_t otherwise) {
  if (list.empty()) return Ints(axes, otherwise);
  if (list.size() == 1) return Ints(axes, list[0]);
  PELTON_CHECK(list.size() == axes, list, " for ", axes, " axes");
  return list;
}

Shape dims_of(const Ints& list) {
  return Shape(list.begin(), list.end());
}

int64_t channels(Builder& b, ValueId x) {
  const Dim& c = b.shape(x)[1];
  if (!c.is_const())
    fail(ErrorCode::bad_shape, cat("the number of channels must be known, but is ", c.str()), b.node_name());
  return c.value();
}

void check_groups(Builder& b, int64_t in, int64_t out, int64_t groups) {
  if (groups < 1 || in % groups || out % groups)
    fail(ErrorCode::bad_shape, cat(groups, " groups do not divide ", in, " and ", out, " channels"),
         b.node_name());
}

Attrs windows(const ConvOptions& o, size_t axes) {
  Ints padding = spread(o.padding, axes, 0);
  return {{"strides", spread(o.stride, axes, 1)},
          {"dilations", spread(o.dilation, axes, 1)},
          {"low", dims_of(padding)},
          {"high", dims_of(padding)},
          {"groups", o.groups}};
}

ValueId pool(Net& net, std::string_view op, ValueId x, const PoolOptions& o, Attrs attrs) {
  Builder& b = net.builder();
  b.set_name(net.path(op));
  size_t axes = spatial(b, x);
  Ints kernel = spread(o.kernel, axes, 1), padding = spread(o.padding, axes, 0);
  attrs["kernel"] = kernel;
  attrs["strides"] = o.stride.empty() ? kernel : spread(o.stride, axes, 1);
  attrs["low"] = dims_of(padding);
  attrs["high"] = dims_of(padding);
  attrs["ceil"] = o.ceil;
  return b.op(op, {x}, std::move(attrs));
}

// The convolution `op` with parameters in the present scope: weight of `shape` and then the kernel's sizes,
// bias of `out`.
ValueId weighted(Net& net, const char* op, ValueId x, Dims shape, int64_t out, const ConvOptions& o,
                 Attrs attrs) {
  Builder& b = net.builder();
  for (int64_t k : spread(o.kernel, spatial(b, x), 1)) shape.push_back(k);
  std::vector<ValueId> inputs{x, net.parameter("weight", shape, o.weight_init.value_or(by_fan_in(shape)))};
  if (o.bias) inputs.push_back(net.parameter("bias", {out}, by_fan_in(shape)));
  return b.op(op, inputs, std::move(attrs));
}

}  // namespace

ValueId conv(Net& net, std::string_view name, ValueId x, int64_t out, const ConvOptions& o) {
  auto at = net.scope(name);
  Builder& b = net.builder();
  b.set_name(net.path(""));
  check_groups(b, channels(b, x), out, o.groups);
  return weighted(net, "conv", x, {out, channels(b, x) / o.groups}, out, o, windows(o, spatial(b, x)));
}

ValueId conv_transpose(Net& net, std::string_view name, ValueId x, int64_t out, const ConvOptions& o) {
  auto at = net.scope(name);
  Builder& b = net.builder();
  b.set_name(net.path(""));
  check_groups(b, channels(b, x), out, o.groups);
  Attrs attrs = windows(o, spatial(b, x));
  attrs["output_padding"] = spread(o.output_padding, spatial(b, x), 0);
  return weighted(net, "conv_transpose", x, {channels(b, x), out / o.groups}, out, o, std::move(attrs));
}

ValueId max_pool(Net& net, ValueId x, const PoolOptions& o) {
  return pool(net, "max_pool", x, o, {});
}
ValueId avg_pool(Net& net, ValueId x, const PoolOptions& o) {
  return pool(net, "avg_pool", x, o, {{"count_padding", o.count_padding}});
}

ValueId global_avg_pool(Net& net, ValueId x) {
  Builder& b = net.builder();
  b.set_name(net.path("global_avg_pool"));
  Ints axes;
  for (int64_t a = 2; a < b.rank(x); ++a) axes.push_back(a);
  return b.reduce("reduce_mean", x, axes, false);
}

ValueId upsample(Net& net, ValueId x, int64_t factor, std::string_view mode) {
  Builder& b = net.builder();
  b.set_name(net.path("upsample"));
  size_t axes = spatial(b, x);
  Shape dims = b.shape(x);
  Ints which;
  for (size_t a = 2; a < axes + 2; ++a) {
    dims[a] = dims[a] * factor;
    which.push_back(static_cast<int64_t>(a));
  }
  Attrs attrs{{"dims", dims}, {"axes", which}, {"mode", std::string(mode)}};
  if (mode == "nearest") attrs["coordinates"] = std::string("asymmetric");
  if (mode == "nearest") attrs["nearest"] = std::string("floor");
  return b.op("resample", {x}, std::move(attrs));
}

}  // namespace pelton::nn
