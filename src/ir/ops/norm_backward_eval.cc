// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/composite.h"
#include "ir/ops/norm_backward.h"

namespace pelton::ir {
namespace {

// x as [outer, size, inner] where a statistic belongs to `place` and the parameters to `channel`.
struct Places {
  Dims dims;
  std::function<size_t(const Dims&)> statistic, parameter;
  size_t statistics = 0, parameters = 0;
};

size_t flat(const Dims& index, const Dims& dims, size_t from, size_t to) {
  int64_t at = 0;
  for (size_t d = from; d < to; ++d) at = at * dims[d] + index[d];
  return static_cast<size_t>(at);
}
size_t product(const Dims& dims, size_t from, size_t to) {
  return static_cast<size_t>(element_count(Dims(dims.begin() + static_cast<std::ptrdiff_t>(from),
                                                dims.begin() + static_cast<std::ptrdiff_t>(to))));
}

struct Gradients {
  std::vector<double> dx, dscale, dbias;
};
// `scale` one an element of x. `centred`: the mean of s is taken off too.
Gradients evaluate(const Places& p, const std::vector<double>& g, const std::vector<double>& x,
                   const std::vector<double>& scale, const std::vector<double>& mean,
                   const std::vector<double>& rstd, bool centred) {
  std::vector<double> h(x.size()), sum_s(p.statistics), sum_sh(p.statistics), count(p.statistics);
  Gradients out{std::vector<double>(x.size()), std::vector<double>(p.parameters),
                std::vector<double>(p.parameters)};
  size_t i = 0;
  for_each_index(p.dims, [&](const Dims& index) {
    size_t at = p.statistic(index), channel = p.parameter(index);
    h[i] = (x[i] - (centred ? mean[at] : 0)) * rstd[at];
    double s = g[i] * scale[i];
    sum_s[at] += s;
    sum_sh[at] += s * h[i];
    ++count[at];
    out.dscale[channel] += g[i] * h[i];
    out.dbias[channel] += g[i];
    ++i;
  });
  i = 0;
  for_each_index(p.dims, [&](const Dims& index) {
    size_t at = p.statistic(index);
    double mean_s = centred ? sum_s[at] / count[at] : 0;
    out.dx[i] = rstd[at] * (g[i] * scale[i] - mean_s - h[i] * sum_sh[at] / count[at]);
    ++i;
  });
  return out;
}

// Operand i broadcast to the elements of x; 1 if absent.
std::vector<double> spread(const EvalContext& c, size_t i, const Dims& dims) {
  std::vector<double> out(static_cast<size_t>(element_count(dims)), 1.0);
  if (!c.has(i)) return out;
  const Dims& from = c.in(i).dims();
  if (broadcast_dims({dims, from}) != dims)
    c.refuse(ErrorCode::bad_shape, cat("cannot broadcast ", c.in(i).str(), " to ", dims));
  std::vector<double> v = to_doubles(c.in(i));
  Dims strides = row_major_strides(from);
  size_t k = 0;
  for_each_index(dims, [&](const Dims& index) {
    out[k++] = v[static_cast<size_t>(broadcast_offset(index, from, strides))];
  });
  return out;
}

void eval_tail(EvalContext& c, bool centred) {
  const Tensor& x = c.in(1);
  const Dims& dims = x.dims();
  auto axis = static_cast<size_t>(wrap_axis(c.node.get_int("axis"), x.rank())), rank = dims.size();
  Places p{dims, [&](const Dims& i) { return flat(i, dims, 0, axis); },
           [&](const Dims& i) { return flat(i, dims, axis, rank); }, product(dims, 0, axis),
           product(dims, axis, rank)};
  size_t rstd = centred ? 3 : 2;
  Gradients out = evaluate(p, to_doubles(c.in(0)), to_doubles(x), spread(c, rstd + 1, dims),
                           to_doubles(c.in(2)), to_doubles(c.in(rstd)), centred);
  DType t = c.has(rstd + 1) ? c.in(rstd + 1).dtype() : x.dtype();
  Dims tail(dims.begin() + static_cast<std::ptrdiff_t>(axis), dims.end());
  c.out(0, from_doubles(x.dtype(), dims, out.dx));
  c.out(1, from_doubles(t, tail, out.dscale));
  if (centred) c.out(2, from_doubles(t, tail, out.dbias));
}

void eval_channels(EvalContext& c, Places p) {
  const Tensor &x = c.in(1), &scale = c.in(2);
  const Dims& dims = x.dims();
  p.dims = dims;
  p.parameter = [&](const Dims& i) { return i.size() >= 2 ? static_cast<size_t>(i[1]) : 0; };
  p.parameters = static_cast<size_t>(scale.count());
  std::vector<double> values = to_doubles(scale), spread_scale;
  for_each_index(dims, [&](const Dims& i) { spread_scale.push_back(values[p.parameter(i)]); });
  Gradients out = evaluate(p, to_doubles(c.in(0)), to_doubles(x), spread_scale, to_doubles(c.in(3)),
                           to_doubles(c.in(4)), true);
  c.out(0, from_doubles(x.dtype(), dims, out.dx));
  c.out(1, from_doubles(scale.dtype(), scale.dims(), out.dscale));
  c.out(2, from_doubles(scale.dtype(), scale.dims(), out.dbias));
}

}  // namespace

void eval_layer_norm_backward(EvalContext& c) {
  eval_tail(c, true);
}
void eval_rms_norm_backward(EvalContext& c) {
  eval_tail(c, false);
}
void eval_batch_norm_backward(EvalContext& c) {
  Places p;
  p.statistic = [](const Dims& i) { return i.size() >= 2 ? static_cast<size_t>(i[1]) : 0; };
  p.statistics = static_cast<size_t>(c.in(3).count());
  eval_channels(c, p);
}
void eval_group_norm_backward(EvalContext& c) {
  int64_t groups = c.node.get_int("groups"), channels = c.in(1).dims()[1];
  if (channels % groups != 0)
    c.refuse(ErrorCode::bad_shape, cat("cannot split ", channels, " channels into ", groups, " groups"));
  int64_t each = channels / groups;
  Places p;
  p.statistic = [=](const Dims& i) { return static_cast<size_t>(i[0] * groups + (each ? i[1] / each : 0)); };
  p.statistics = static_cast<size_t>(c.in(3).count());
  eval_channels(c, p);
}

}  // namespace pelton::ir
