// SPDX-License-Identifier: Apache-2.0
// Normalisation layers.
#include "nn/layers.h"

namespace pelton::nn {

namespace {

int64_t known(Net& net, const Dim& d) {
  if (!d.is_const())
    fail(ErrorCode::bad_shape, cat("the normalised size must be known, but is ", d.str()),
         net.builder().node_name());
  return d.value();
}

// Elements behind one channel's statistics, as a value of x's type.
ValueId element_count(Net& net, ValueId x) {
  Builder& b = net.builder();
  Dim n = 1;
  const Shape& shape = b.shape(x);
  for (size_t i = 0; i < shape.size(); ++i)
    if (i != 1) n = n * shape[i];
  if (n.is_const()) return b.like(x, static_cast<double>(n.value()));
  return b.cast(b.reshape(b.op("contents", {}, {{"dims", Shape{n}}}), {}), b.dtype(x));
}

// count / (count - 1), and 1 for a single element.
ValueId bessel(Net& net, ValueId count) {
  Builder& b = net.builder();
  return b.div(count, b.op("max", {b.sub(count, b.like(count, 1)), b.like(count, 1)}));
}

// old + momentum * (batch - old)
ValueId moved(Net& net, ValueId old, ValueId batch, double momentum) {
  Builder& b = net.builder();
  return b.add(b.mul(old, b.like(old, 1 - momentum)), b.mul(batch, b.like(batch, momentum)));
}

// Statistics over the rows that count; padding rows get some finite value that nothing reads.
ValueId masked_batch_norm(Net& net, ValueId x, ValueId rows, const BatchNormState& s,
                          const BatchNormOptions& o) {
  Builder& b = net.builder();
  const Shape shape = b.shape(x);
  Ints axes{0};
  Shape channel(shape.size(), Dim(1));
  channel[1] = shape[1];
  Dim area = 1;
  for (size_t i = 2; i < shape.size(); ++i) {
    axes.push_back(static_cast<int64_t>(i));
    area = area * shape[i];
  }
  int64_t c = known(net, shape[1]);
  ValueId counted = b.mul(b.cast(net.valid(), b.dtype(x)), b.like(x, static_cast<double>(known(net, area))));
  ValueId count = b.op("max", {counted, b.like(x, 1)}), any = b.op("gt", {counted, b.like(x, 0)});
  auto mean_of = [&](ValueId v) {
    ValueId kept = b.select(rows, v, b.like(v, 0));
    return b.div(b.reduce("reduce_sum", kept, axes, true), count);
  };
  ValueId mean = mean_of(x);
  ValueId centred = b.sub(x, mean);
  ValueId var = mean_of(b.op("square", {centred}));
  ValueId rstd = b.op("rsqrt", {b.add(var, b.like(var, o.eps))});
  ValueId old_mean = net.statistic(s.mean, {c}, 0), old_var = net.statistic(s.var, {c}, 1);
  ValueId unbiased = b.mul(b.reshape(var, {c}), bessel(net, count));
  auto store = [&](const std::string& name, ValueId old, ValueId batch) {
    net.store_statistic(name, b.select(any, moved(net, old, batch, o.momentum), old));
  };
  store(s.mean, old_mean, b.reshape(mean, {c}));
  store(s.var, old_var, unbiased);
  ValueId y = b.mul(b.mul(centred, rstd), b.reshape(s.scale, channel));
  return b.add(y, b.reshape(s.bias, channel));
}

}  // namespace

ValueId batch_norm(Net& net, std::string_view name, ValueId x, const BatchNormOptions& o) {
  auto at = net.scope(name);
  net.builder().set_name(net.path(""));
  int64_t c = known(net, net.builder().shape(x)[1]);
  ValueId scale = net.parameter("weight", {c}, o.weight_init.value_or(Init::ones()));
  return batch_norm(net, x, {scale, net.parameter("bias", {c}, Init::zeros()), "running_mean", "running_var"},
                    o);
}

ValueId batch_norm(Net& net, ValueId x, const BatchNormState& s, const BatchNormOptions& o) {
  Builder& b = net.builder();
  int64_t c = known(net, b.shape(x)[1]);
  ValueId mean = net.statistic(s.mean, {c}, 0), var = net.statistic(s.var, {c}, 1);
  if (!net.training()) return b.op("batch_norm", {x, s.scale, s.bias, mean, var}, {{"eps", o.eps}});
  if (ValueId rows = net.valid_rows(x, b.rank(x))) return masked_batch_norm(net, x, rows, s, o);
  double keep = 1 - o.momentum;
  std::vector<ValueId> r =
      b.ops("batch_norm_train", {x, s.scale, s.bias, mean, var}, {{"eps", o.eps}, {"momentum", keep}}, 5);
  net.store_statistic(s.mean, r[1]);
  // The op's variance is that of the batch itself; what is kept is the estimate for all data.
  ValueId kept = b.mul(var, b.like(var, keep));
  net.store_statistic(s.var, b.add(kept, b.mul(b.sub(r[2], kept), bessel(net, element_count(net, x)))));
  return r[0];
}

ValueId layer_norm(Net& net, std::string_view name, ValueId x, double eps) {
  auto at = net.scope(name);
  Builder& b = net.builder();
  b.set_name(net.path(""));
  int64_t width = known(net, b.shape(x).back());
  return b.ops(
      "layer_norm",
      {x, net.parameter("weight", {width}, Init::ones()), net.parameter("bias", {width}, Init::zeros())},
      {{"axis", b.rank(x) - 1}, {"eps", eps}}, 1)[0];
}

ValueId rms_norm(Net& net, std::string_view name, ValueId x, double eps) {
  auto at = net.scope(name);
  Builder& b = net.builder();
  b.set_name(net.path(""));
  int64_t width = known(net, b.shape(x).back());
  return b.ops("rms_norm", {x, net.parameter("weight", {width}, Init::ones())},
               {{"axis", b.rank(x) - 1}, {"eps", eps}}, 1)[0];
}

ValueId group_norm(Net& net, std::string_view name, ValueId x, int64_t groups, double eps) {
  auto at = net.scope(name);
  Builder& b = net.builder();
  b.set_name(net.path(""));
  int64_t c = known(net, b.shape(x)[1]);
  if (groups < 1 || c % groups)
    fail(ErrorCode::bad_shape, cat(groups, " groups do not divide ", c, " channels"), net.path(""));
  return b.ops("group_norm",
               {x, net.parameter("weight", {c}, Init::ones()), net.parameter("bias", {c}, Init::zeros())},
               {{"groups", groups}, {"eps", eps}}, 1)[0];
}

ValueId instance_norm(Net& net, std::string_view name, ValueId x, double eps) {
  return group_norm(net, name, x, known(net, net.builder().shape(x)[1]), eps);
}

ValueId local_response_norm(Net& net, ValueId x, int64_t size, double alpha, double beta, double bias) {
  net.builder().set_name(net.path("lrn"));
  return net.builder().op("lrn", {x}, {{"size", size}, {"alpha", alpha}, {"beta", beta}, {"bias", bias}});
}

ValueId local_contrast_norm(Net& net, ValueId x, int64_t size) {
  Builder& b = net.builder();
  b.set_name(net.path("lcn"));
  PoolOptions window{.kernel = {size}, .stride = {1}, .padding = {size / 2}, .count_padding = false};
  if (size % 2 == 0)
    fail(ErrorCode::bad_shape, cat("the window of local contrast normalisation is odd, not ", size),
         net.path(""));
  auto local_mean = [&](ValueId v) { return b.reduce("reduce_mean", avg_pool(net, v, window), {1}, true); };
  ValueId centred = b.sub(x, local_mean(x));
  ValueId deviation = b.op("sqrt", {local_mean(b.op("square", {centred}))});
  ValueId floor = b.reduce("reduce_mean", deviation, {2, 3}, true);
  ValueId divisor = b.op("max", {b.op("max", {deviation, floor}), b.like(x, 1e-6)});
  return b.div(centred, divisor);
}

}  // namespace pelton::nn
