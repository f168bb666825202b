// SPDX-License-Identifier: Apache-2.0
// Discrete Fourier transform along one axis. Complex values have a last dimension of 2, real ones of 1.
//   forward            x[..., T, 1 or 2] -> [..., n, 2], or with `onesided` the first n / 2 + 1 (x must be
//   real) inverse            x[..., T, 1 or 2] -> [..., n, 2], divided by n inverse, onesided  x[..., T, 2]
//   holding n / 2 + 1 values -> real [..., n, 1]
// n is the input `length` (T is cut or padded with zeros), else T, or 2 (T - 1) for the last form.
#include <cmath>

#include "ir/ops/composite.h"
#include "ir/ops/lanes.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;

void infer_fft(InferContext& c) {
  require_float(c, 0, "C1");
  const Shape& x = c.shape(0);
  c.require(x.size() >= 2 && x.back().is_const() && (x.back().value() == 1 || x.back().value() == 2), kShape,
            "C2", cat("needs a last dimension of 1 or 2, not ", cat(x)));
  int64_t axis = c.axis(c.node.get_int("axis"), c.rank(0));
  c.require(axis < c.rank(0) - 1, kShape, "C2",
            "transforms the last axis, which holds real and imaginary parts");
  bool inverse = c.node.get_bool("inverse"), onesided = c.node.get_bool("onesided");
  if (onesided)
    c.require(x.back().value() == (inverse ? 2 : 1), kShape, "C3",
              cat("needs ", inverse ? "complex" : "real", " values to be one-sided, not ", cat(x)));
  Dim length = x[static_cast<size_t>(axis)];
  bool known = true;
  if (inverse && onesided) length = (length - 1) * 2;
  if (c.has(1)) {
    c.require(is_int(c.dtype(1)), ErrorCode::bad_type, "C1", "needs an integer length");
    require_single(c, 1, "C4");
    auto given = c.contents(1);
    known = given && given->size() == 1;
    if (known) length = (*given)[0];
  }
  c.require(!known || length.range(c.ranges()).max >= 1, kShape, "C4", cat("has length ", length.str()));
  Shape out = x;
  Dim& size = out[static_cast<size_t>(axis)];
  size = onesided && !inverse ? Dim::floor_div(length, 2) + 1 : length;
  if (!known) size = c.fresh_size(0, static_cast<size_t>(axis), {1, INT64_MAX});
  out.back() = onesided && inverse ? 1 : 2;
  c.output(0, c.dtype(0), out);
}

void eval_fft(EvalContext& c) {
  const Tensor& x = c.in(0);
  int64_t axis = wrap_axis(c.node.get_int("axis"), x.rank());
  bool inverse = c.node.get_bool("inverse"), onesided = c.node.get_bool("onesided");
  Dims dims = x.dims();
  int64_t have = dims[static_cast<size_t>(axis)], parts = dims.back();
  int64_t n = c.has(1) ? c.in(1).get_int(0) : inverse && onesided ? 2 * (have - 1) : have;
  if (n < 1 || n > (int64_t{1} << 26)) c.refuse(kShape, cat("has length ", n));
  std::vector<double> v = to_doubles(x), cosine(static_cast<size_t>(n)), sine(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) {
    double angle = 2 * M_PI * static_cast<double>(k) / static_cast<double>(n);
    cosine[static_cast<size_t>(k)] = std::cos(angle);
    sine[static_cast<size_t>(k)] = inverse ? std::sin(angle) : -std::sin(angle);
  }
  Dims out_dims = dims;
  int64_t yields = onesided && !inverse ? n / 2 + 1 : n;
  out_dims[static_cast<size_t>(axis)] = yields;
  out_dims.back() = onesided && inverse ? 1 : 2;
  std::vector<double> out(static_cast<size_t>(element_count(out_dims)));
  // Lanes without the last dimension, which is inside `inner`.
  Lanes in(dims, axis, axis + 1);
  int64_t inner = in.inner / parts, out_parts = out_dims.back();
  std::vector<double> re(static_cast<size_t>(n)), im(static_cast<size_t>(n));
  for (int64_t o = 0; o < in.outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      for (int64_t t = 0; t < n; ++t) {
        // The upper half of a one-sided spectrum mirrors the lower.
        bool mirrored = inverse && onesided && t > n / 2;
        int64_t from = mirrored ? n - t : t;
        size_t at = static_cast<size_t>(((o * have + from) * inner + i) * parts);
        bool present = from < have;
        re[static_cast<size_t>(t)] = present ? v[at] : 0;
        im[static_cast<size_t>(t)] = present && parts == 2 ? (mirrored ? -v[at + 1] : v[at + 1]) : 0;
      }
      if (inverse && onesided) {
        im[0] = 0;
        if (n % 2 == 0) im[static_cast<size_t>(n / 2)] = 0;
      }
      for (int64_t k = 0; k < yields; ++k) {
        double sum_re = 0, sum_im = 0;
        for (int64_t t = 0, turn = 0; t < n; ++t, turn = (turn + k) % n) {
          auto at = static_cast<size_t>(t), w = static_cast<size_t>(turn);
          sum_re += re[at] * cosine[w] - im[at] * sine[w];
          sum_im += re[at] * sine[w] + im[at] * cosine[w];
        }
        double scale = inverse ? 1 / static_cast<double>(n) : 1;
        auto to = static_cast<size_t>(((o * yields + k) * inner + i) * out_parts);
        out[to] = sum_re * scale;
        if (out_parts == 2) out[to + 1] = sum_im * scale;
      }
    }
  c.out(0, from_doubles(x.dtype(), out_dims, out));
}

double fft_flops(const Graph&, const Node& n, const std::vector<Dims>&, const std::vector<Dims>& out) {
  const Dims& y = out[0];
  auto axis = static_cast<size_t>(wrap_axis(n.get_int("axis"), static_cast<int64_t>(y.size())));
  auto length = static_cast<double>(std::max<int64_t>(y[axis], 1));
  return 2.5 * static_cast<double>(element_count(y)) * std::log2(length + 1);
}

}  // namespace

void add_fft(OpRows& rows) {
  OpDef row;
  row.name = "fft";
  row.family = Family::fft;
  row.max_inputs = 2;
  row.attrs = {{"axis", AttrKind::integer, Attr(int64_t{-2})},
               {"inverse", AttrKind::boolean, Attr(false)},
               {"onesided", AttrKind::boolean, Attr(false)}};
  row.constraints = {"C1: floats and an integer length", "C2: the last dimension is 1 or 2 and stays",
                     "C3: one-sided forms are real to complex, inverse complex to real",
                     "C4: one positive length"};
  row.infer = infer_fft;
  row.eval = eval_fft;
  row.flops = fft_flops;
  row.precision = Precision::accumulates;
  rows.push_back(std::move(row));
}

}  // namespace pelton::ir
