// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ir/ops/composite.h"
#include "ir/ops/lanes.h"
#include "ir/ops/norm.h"

namespace pelton::ir {
namespace {

Lanes lanes_along(const EvalContext& c) {
  const Tensor& x = c.in(0);
  int64_t axis = wrap_axis(c.node.get_int("axis"), x.rank());
  return Lanes(x.dims(), axis, axis + 1);
}

// exp(x - max) and the sum of it along each lane; `finish` turns (x, max, sum) into the result.
template <class F>
void softmax_like(EvalContext& c, F&& finish) {
  std::vector<double> v = to_doubles(c.in(0));
  Lanes lanes = lanes_along(c);
  auto n = static_cast<size_t>(lanes.size), step = static_cast<size_t>(lanes.inner);
  lanes.for_each([&](size_t at, size_t) {
    double top = -INFINITY, sum = 0;
    for (size_t k = 0; k < n; ++k) top = std::max(top, v[at + k * step]);
    for (size_t k = 0; k < n; ++k) sum += std::exp(v[at + k * step] - top);
    for (size_t k = 0; k < n; ++k) v[at + k * step] = finish(v[at + k * step], top, sum);
  });
  c.out(0, from_doubles(c.in(0).dtype(), c.in(0).dims(), v));
}

struct Moments {
  double mean = 0, variance = 0;  // of the population
};
// Over `parts` runs of `length` neighbouring elements, `stride` apart.
Moments moments(const double* x, size_t parts, size_t length, size_t stride) {
  auto count = static_cast<double>(parts * length);
  Moments m;
  for (size_t p = 0; p < parts; ++p)
    for (size_t k = 0; k < length; ++k) m.mean += x[p * stride + k];
  m.mean /= count;
  for (size_t p = 0; p < parts; ++p)
    for (size_t k = 0; k < length; ++k) {
      double d = x[p * stride + k] - m.mean;
      m.variance += d * d;
    }
  m.variance /= count;
  return m;
}

// v = v * scale + bias with operands that broadcast to x; absent ones do nothing.
void scale_and_shift(EvalContext& c, std::vector<double>& v) {
  const Dims& dims = c.in(0).dims();
  for (size_t input : {1, 2}) {
    if (!c.has(input)) continue;
    const Tensor& t = c.in(input);
    if (broadcast_dims({dims, t.dims()}) != dims)
      c.refuse(ErrorCode::bad_shape, cat("cannot broadcast ", t.str(), " to ", c.in(0).str()));
    std::vector<double> values = to_doubles(t);
    Dims strides = row_major_strides(t.dims());
    size_t i = 0;
    for_each_index(dims, [&](const Dims& index) {
      double operand = values[static_cast<size_t>(broadcast_offset(index, t.dims(), strides))];
      v[i] = input == 1 ? v[i] * operand : v[i] + operand;
      ++i;
    });
  }
}

Tensor statistics(const EvalContext& c, int64_t axis, const std::vector<double>& values) {
  Dims dims = c.in(0).dims();
  for (auto d = static_cast<size_t>(axis); d < dims.size(); ++d) dims[d] = 1;
  return from_doubles(wide_type(c.in(0).dtype()), dims, values);
}

}  // namespace

void eval_softmax(EvalContext& c) {
  softmax_like(c, [](double x, double top, double sum) { return std::exp(x - top) / sum; });
}
void eval_log_softmax(EvalContext& c) {
  softmax_like(c, [](double x, double top, double sum) { return x - top - std::log(sum); });
}

void eval_layer_norm(EvalContext& c) {
  const Tensor& x = c.in(0);
  int64_t axis = wrap_axis(c.node.get_int("axis"), x.rank());
  Lanes lanes(x.dims(), axis, x.rank());
  double eps = c.node.get_real("eps");
  std::vector<double> v = to_doubles(x), means, rstds;
  auto n = static_cast<size_t>(lanes.size);
  lanes.for_each([&](size_t at, size_t) {
    Moments m = moments(&v[at], 1, n, n);
    means.push_back(m.mean);
    rstds.push_back(1 / std::sqrt(m.variance + eps));
    for (size_t k = 0; k < n; ++k) v[at + k] = (v[at + k] - m.mean) * rstds.back();
  });
  scale_and_shift(c, v);
  c.out(0, from_doubles(x.dtype(), x.dims(), v));
  c.out(1, statistics(c, axis, means));
  c.out(2, statistics(c, axis, rstds));
}

void eval_rms_norm(EvalContext& c) {
  const Tensor& x = c.in(0);
  int64_t axis = wrap_axis(c.node.get_int("axis"), x.rank());
  Lanes lanes(x.dims(), axis, x.rank());
  double eps = c.node.get_real("eps");
  std::vector<double> v = to_doubles(x), rstds;
  auto n = static_cast<size_t>(lanes.size);
  lanes.for_each([&](size_t at, size_t) {
    double sum = 0;
    for (size_t k = 0; k < n; ++k) sum += v[at + k] * v[at + k];
    rstds.push_back(1 / std::sqrt(sum / static_cast<double>(n) + eps));
    for (size_t k = 0; k < n; ++k) v[at + k] *= rstds.back();
  });
  scale_and_shift(c, v);
  c.out(0, from_doubles(x.dtype(), x.dims(), v));
  c.out(1, statistics(c, axis, rstds));
}

namespace {

// (x - mean) * rstd * scale + bias a channel; x[N, C, S...].
Tensor normalise_channels(const EvalContext& c, const std::vector<double>& mean,
                          const std::vector<double>& rstd) {
  const Tensor& x = c.in(0);
  std::vector<double> v = to_doubles(x), scale = to_doubles(c.in(1)), bias = to_doubles(c.in(2));
  Lanes lanes = x.rank() >= 2 ? Lanes(x.dims(), 1, 2) : Lanes(x.dims(), 0, 0);
  auto channels = static_cast<size_t>(lanes.size), step = static_cast<size_t>(lanes.inner);
  lanes.for_each([&](size_t at, size_t) {
    for (size_t k = 0; k < channels; ++k) {
      double& e = v[at + k * step];
      e = (e - mean[k]) * rstd[k] * scale[k] + bias[k];
    }
  });
  return from_doubles(x.dtype(), x.dims(), v);
}
std::vector<double> rstd_of(std::vector<double> variance, double eps) {
  for (double& v : variance) v = 1 / std::sqrt(v + eps);
  return variance;
}

}  // namespace

void eval_batch_norm(EvalContext& c) {
  c.out(0, normalise_channels(c, to_doubles(c.in(3)), rstd_of(to_doubles(c.in(4)), c.node.get_real("eps"))));
}

void eval_batch_norm_train(EvalContext& c) {
  const Tensor& x = c.in(0);
  std::vector<double> v = to_doubles(x), mean = to_doubles(c.in(3)), variance = to_doubles(c.in(4));
  Lanes lanes = x.rank() >= 2 ? Lanes(x.dims(), 1, 2) : Lanes(x.dims(), 0, 0);
  auto channels = static_cast<size_t>(lanes.size), inner = static_cast<size_t>(lanes.inner);
  double keep = c.node.get_real("momentum");
  std::vector<double> now_mean, now_variance;
  for (size_t k = 0; k < channels; ++k) {
    Moments m = moments(v.data() + k * inner, static_cast<size_t>(lanes.outer), inner, channels * inner);
    now_mean.push_back(m.mean);
    now_variance.push_back(m.variance);
    mean[k] = mean[k] * keep + m.mean * (1 - keep);
    variance[k] = variance[k] * keep + m.variance * (1 - keep);
  }
  std::vector<double> rstd = rstd_of(now_variance, c.node.get_real("eps"));
  c.out(0, normalise_channels(c, now_mean, rstd));
  c.out(1, from_doubles(c.in(3).dtype(), c.in(3).dims(), mean));
  c.out(2, from_doubles(c.in(4).dtype(), c.in(4).dims(), variance));
  c.out(3, from_doubles(wide_type(x.dtype()), c.in(3).dims(), now_mean));
  c.out(4, from_doubles(wide_type(x.dtype()), c.in(4).dims(), rstd));
}

void eval_group_norm(EvalContext& c) {
  const Tensor& x = c.in(0);
  int64_t groups = c.node.get_int("groups"), channels = x.dims()[1];
  if (channels % groups != 0)
    c.refuse(ErrorCode::bad_shape, cat("cannot split ", channels, " channels into ", groups, " groups"));
  std::vector<double> v = to_doubles(x), scale = to_doubles(c.in(1)), bias = to_doubles(c.in(2));
  std::vector<double> means, rstds;
  auto inner = static_cast<size_t>(Lanes(x.dims(), 1, 2).inner);
  auto a_group = static_cast<size_t>(channels / groups);
  for (int64_t g = 0; g < x.dims()[0] * groups; ++g) {
    double* at = v.data() + static_cast<size_t>(g) * a_group * inner;
    Moments m = moments(at, 1, a_group * inner, 0);
    double rstd = 1 / std::sqrt(m.variance + c.node.get_real("eps"));
    means.push_back(m.mean);
    rstds.push_back(rstd);
    for (size_t k = 0; k < a_group; ++k) {
      size_t channel = static_cast<size_t>(g % groups) * a_group + k;
      for (size_t i = 0; i < inner; ++i) {
        double& e = at[k * inner + i];
        e = (e - m.mean) * rstd * scale[channel] + bias[channel];
      }
    }
  }
  c.out(0, from_doubles(x.dtype(), x.dims(), v));
  for (size_t i : {1, 2})
    c.out(i, from_doubles(wide_type(x.dtype()), {x.dims()[0], groups}, i == 1 ? means : rstds));
}

// y = x / (bias + alpha / size * sum of squares over `size` neighbouring channels) ^ beta
void eval_lrn(EvalContext& c) {
  const Tensor& x = c.in(0);
  std::vector<double> v = to_doubles(x), out(v.size());
  Lanes lanes(x.dims(), 1, 2);
  int64_t size = c.node.get_int("size"), before = (size - 1) / 2, after = size - 1 - before;
  double alpha = c.node.get_real("alpha") / static_cast<double>(size), beta = c.node.get_real("beta");
  auto step = static_cast<size_t>(lanes.inner);
  lanes.for_each([&](size_t at, size_t) {
    for (int64_t k = 0; k < lanes.size; ++k) {
      double sum = 0;
      int64_t last = std::min(lanes.size - 1, k + after);
      for (int64_t j = std::max<int64_t>(0, k - before); j <= last; ++j) {
        double e = v[at + static_cast<size_t>(j) * step];
        sum += e * e;
      }
      size_t i = at + static_cast<size_t>(k) * step;
      out[i] = v[i] / std::pow(c.node.get_real("bias") + alpha * sum, beta);
    }
  });
  c.out(0, from_doubles(x.dtype(), x.dims(), out));
}

// x over its norm; a lane of zeros stays zero.
void eval_lp_norm(EvalContext& c) {
  std::vector<double> v = to_doubles(c.in(0));
  Lanes lanes = lanes_along(c);
  auto n = static_cast<size_t>(lanes.size), step = static_cast<size_t>(lanes.inner);
  bool squares = c.node.get_int("p") == 2;
  lanes.for_each([&](size_t at, size_t) {
    double sum = 0;
    for (size_t k = 0; k < n; ++k) {
      double e = v[at + k * step];
      sum += squares ? e * e : std::fabs(e);
    }
    double norm = squares ? std::sqrt(sum) : sum;
    for (size_t k = 0; k < n; ++k) v[at + k * step] = norm == 0 ? 0 : v[at + k * step] / norm;
  });
  c.out(0, from_doubles(c.in(0).dtype(), c.in(0).dims(), v));
}

}  // namespace pelton::ir
