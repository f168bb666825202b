// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ir/ops/pool_backward.h"
#include "ir/ops/window.h"

namespace pelton::ir {
namespace {

// Calls f(window in g, offsets in x of the taps inside it, taps inside x or its pads) for every window.
template <class F>
void for_each_window(const EvalContext& c, const Dims& x, F&& f) {
  const Dims& g = c.in(0).dims();
  ConcreteWindow window = concrete_window(c, c.node.get_ints("kernel"));
  Dims spatial(x.begin() + 2, x.end()), positions(g.begin() + 2, g.end()),
      strides = row_major_strides(spatial);
  for (size_t d = 0; d < spatial.size(); ++d)
    if (int64_t want = window.out_size(d, spatial[d], c.node.get_bool("ceil")); want != positions[d])
      c.refuse(ErrorCode::bad_shape,
               cat("needs a gradient of size ", want, " along spatial axis ", d, ", not ", positions[d]));
  int64_t pixels = element_count(spatial);
  size_t at_g = 0;
  std::vector<size_t> taps;
  for (int64_t plane = 0; plane < x[0] * x[1]; ++plane)
    for_each_index(positions, [&](const Dims& o) {
      taps.clear();
      int64_t padded = 0;
      for_each_index(window.kernel, [&](const Dims& k) {
        int64_t at = plane * pixels;
        bool inside = true, in_pads = true;
        for (size_t d = 0; d < k.size(); ++d) {
          int64_t position = window.position(d, o[d], k[d]);
          inside &= position >= 0 && position < spatial[d];
          in_pads &= position < spatial[d] + window.high[d];
          at += position * strides[d];
        }
        padded += in_pads;
        if (inside) taps.push_back(static_cast<size_t>(at));
      });
      f(at_g++, taps, padded);
    });
}

}  // namespace

// The first of equal values takes the gradient; NaN counts as the largest.
void eval_max_pool_backward(EvalContext& c) {
  const Tensor& x = c.in(1);
  std::vector<double> g = to_doubles(c.in(0)), v = to_doubles(x), dx(v.size());
  for_each_window(c, x.dims(), [&](size_t at, const std::vector<size_t>& taps, int64_t) {
    if (taps.empty()) return;
    size_t best = taps[0];
    for (size_t t : taps)
      if (v[t] > v[best] || (std::isnan(v[t]) && !std::isnan(v[best]))) best = t;
    dx[best] += g[at];
  });
  c.out(0, from_doubles(x.dtype(), x.dims(), dx));
}

void eval_avg_pool_backward(EvalContext& c) {
  Dims dims = c.dims("dims");
  bool count_padding = c.node.get_bool("count_padding");
  std::vector<double> g = to_doubles(c.in(0)), dx(static_cast<size_t>(element_count(dims)));
  for_each_window(c, dims, [&](size_t at, const std::vector<size_t>& taps, int64_t padded) {
    double divisor = count_padding ? static_cast<double>(padded) : static_cast<double>(taps.size());
    for (size_t t : taps) dx[t] += g[at] / divisor;
  });
  c.out(0, from_doubles(c.out_dtype(), dims, dx));
}

}  // namespace pelton::ir
