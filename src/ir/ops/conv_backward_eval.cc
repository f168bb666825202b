// SPDX-License-Identifier: Apache-2.0
// The plain loops: every product of an element of g with an element of x or w, added where it belongs, in
// f64.
#include "ir/ops/conv_backward.h"
#include "ir/ops/window.h"

namespace pelton::ir {
namespace {

// Calls f(offset in g, offset in x, offset in w) for every product of the convolution x[N,C,S...] * w = g.
template <class F>
void for_each_product(const ConcreteWindow& window, const Dims& g, const Dims& x, const Dims& w,
                      int64_t groups, F&& f) {
  Dims positions(g.begin() + 2, g.end()), image(x.begin() + 2, x.end()), strides = row_major_strides(image);
  int64_t out_each = g[1] / groups, in_each = w[1], pixels = element_count(image),
          places = element_count(positions), taps = element_count(window.kernel), place = 0;
  for_each_index(positions, [&](const Dims& p) {
    int64_t tap = 0;
    for_each_index(window.kernel, [&](const Dims& k) {
      int64_t at = 0;
      bool inside = true;
      for (size_t d = 0; d < p.size(); ++d) {
        int64_t position = window.position(d, p[d], k[d]);
        inside &= position >= 0 && position < image[d];
        at += position * strides[d];
      }
      if (inside)
        for (int64_t n = 0; n < g[0]; ++n)
          for (int64_t o = 0; o < g[1]; ++o)
            for (int64_t c = 0; c < in_each; ++c)
              f(static_cast<size_t>((n * g[1] + o) * places + place),
                static_cast<size_t>((n * x[1] + o / out_each * in_each + c) * pixels + at),
                static_cast<size_t>((o * in_each + c) * taps + tap));
      ++tap;
    });
    ++place;
  });
}

// g must have the sizes of the convolution's result.
void check(const EvalContext& c, const ConcreteWindow& window, const Dims& x) {
  const Dims& g = c.in(0).dims();
  for (size_t d = 0; d + 2 < g.size(); ++d)
    if (int64_t want = window.out_size(d, x[d + 2]); want != g[d + 2])
      c.refuse(ErrorCode::bad_shape,
               cat("needs a gradient of size ", want, " along spatial axis ", d, ", not ", g[d + 2]));
}

}  // namespace

void eval_conv_backward_data(EvalContext& c) {
  Dims dims = c.dims("dims");
  const Dims &g = c.in(0).dims(), &w = c.in(1).dims();
  ConcreteWindow window = concrete_window(c, Dims(w.begin() + 2, w.end()));
  check(c, window, dims);
  std::vector<double> dy = to_doubles(c.in(0)), weights = to_doubles(c.in(1)),
                      dx(static_cast<size_t>(element_count(dims)));
  for_each_product(window, g, dims, w, c.node.get_int("groups"),
                   [&](size_t at_g, size_t at_x, size_t at_w) { dx[at_x] += dy[at_g] * weights[at_w]; });
  c.out(0, from_doubles(c.out_dtype(), dims, dx));
}

void eval_conv_backward_weights(EvalContext& c) {
  const Dims &g = c.in(0).dims(), &x = c.in(1).dims();
  int64_t groups = c.node.get_int("groups");
  Dims w{g[1], x[1] / groups};
  const Ints& kernel = c.node.get_ints("kernel");
  w.insert(w.end(), kernel.begin(), kernel.end());
  ConcreteWindow window = concrete_window(c, kernel);
  check(c, window, x);
  std::vector<double> dy = to_doubles(c.in(0)), data = to_doubles(c.in(1)),
                      dw(static_cast<size_t>(element_count(w)));
  for_each_product(window, g, x, w, groups,
                   [&](size_t at_g, size_t at_x, size_t at_w) { dw[at_w] += dy[at_g] * data[at_x]; });
  c.out(0, from_doubles(c.out_dtype(), w, dw));
}

}  // namespace pelton::ir
