// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/pool_eval.h"

#include <cmath>
#include <limits>

#include "ir/ops/window.h"

namespace pelton::ir {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Pool {
  ConcreteWindow window;
  Dims spatial, out_spatial, out;
  int64_t planes = 0, pixels = 0;
};

Pool pool(const EvalContext& c) {
  Pool p;
  const Dims& x = c.in(0).dims();
  p.window = concrete_window(c, c.node.get_ints("kernel"));
  p.spatial.assign(x.begin() + 2, x.end());
  p.out = {x[0], x[1]};
  for (size_t i = 0; i < p.spatial.size(); ++i)
    p.out_spatial.push_back(p.window.out_size(i, p.spatial[i], c.node.get_bool("ceil")));
  p.out.insert(p.out.end(), p.out_spatial.begin(), p.out_spatial.end());
  p.planes = x[0] * x[1];
  p.pixels = element_count(p.spatial);
  return p;
}

// Offsets in the plane of the taps of window o that lie inside the input, in row-major order; the result is
// how many taps lie inside the input or its pads.
int64_t taps_of(const Pool& p, const Dims& o, std::vector<int64_t>& offsets) {
  int64_t padded = 1;
  offsets.assign(1, 0);
  std::vector<int64_t> longer;
  for (size_t d = 0; d < o.size(); ++d) {
    const auto [first, last] = p.window.taps_inside(d, o[d], p.spatial[d]);
    const int64_t taps = p.window.taps_inside(d, o[d], p.spatial[d] + p.window.high[d]).last;
    if (__builtin_mul_overflow(padded, taps, &padded)) padded = std::numeric_limits<int64_t>::max();
    longer.clear();
    for (int64_t before : offsets)
      for (int64_t k = first; k < last; ++k)
        longer.push_back(before * p.spatial[d] + p.window.position(d, o[d], k));
    offsets.swap(longer);
  }
  return padded;
}

// Calls start(), then tap(flat offset) for each tap inside the input, then finish(padded taps: those inside
// the input or its pads), for every output in row-major order.
template <class Start, class Tap, class Finish>
void over_windows(const Pool& p, Start start, Tap tap, Finish finish) {
  std::vector<int64_t> offsets;
  for (int64_t plane = 0; plane < p.planes; ++plane)
    for_each_index(p.out_spatial, [&](const Dims& o) {
      start();
      const int64_t padded = taps_of(p, o, offsets);
      for (int64_t at : offsets) tap(plane * p.pixels + at);
      finish(padded);
    });
}

// Flat index over [N,C,S...] whose spatial part counts the first spatial axis fastest.
int64_t column_major(int64_t at, const Pool& p) {
  int64_t rest = at % p.pixels, out = at - rest, scale = 1;
  Dims strides = row_major_strides(p.spatial);
  for (size_t d = 0; d < p.spatial.size(); ++d) {
    out += rest / strides[d] % p.spatial[d] * scale;
    scale *= p.spatial[d];
  }
  return out;
}

}  // namespace

// NaN wins; the first of equal values gives the index. A window wholly in the pads yields the type's lowest
// value (or -inf) and index -1.
void eval_max_pool(EvalContext& c) {
  Pool p = pool(c);
  const Tensor& x = c.in(0);
  DType t = x.dtype();
  std::vector<int64_t> best;
  int64_t at_best = -1;
  std::vector<double> real;
  std::vector<int64_t> whole;
  if (is_float(t))
    real = to_doubles(x);
  else
    whole = to_ints(x);
  auto better = [&](int64_t i, int64_t j) {
    auto u = static_cast<size_t>(i), v = static_cast<size_t>(j);
    if (is_float(t)) return real[u] > real[v] || (std::isnan(real[u]) && !std::isnan(real[v]));
    return t == DType::u64 ? static_cast<uint64_t>(whole[u]) > static_cast<uint64_t>(whole[v])
                           : whole[u] > whole[v];
  };
  over_windows(
      p, [&] { at_best = -1; },
      [&](int64_t at) {
        if (at_best < 0 || better(at, at_best)) at_best = at;
      },
      [&](int64_t) { best.push_back(at_best); });
  Tensor nothing = Tensor::full(t, {1}, is_float(t) ? -std::numeric_limits<double>::infinity() : lowest(t));
  Tensor y = Tensor::zeros(t, p.out);
  for (size_t i = 0; i < best.size(); ++i)
    copy_element(y, static_cast<int64_t>(i), best[i] < 0 ? nothing : x, std::max<int64_t>(best[i], 0));
  c.out(0, std::move(y));
  if (c.outputs.size() < 2) return;
  if (!c.node.get_bool("row_major"))
    for (int64_t& i : best)
      if (i >= 0) i = column_major(i, p);
  c.out(1, from_ints(DType::i64, p.out, best));
}

// Divides by the taps inside the input, or, counting padding, by those inside the padded input.
void eval_avg_pool(EvalContext& c) {
  Pool p = pool(c);
  std::vector<double> x = to_doubles(c.in(0)), y;
  bool count_padding = c.node.get_bool("count_padding");
  double sum = 0;
  int64_t taps = 0;
  over_windows(
      p,
      [&] {
        sum = 0;
        taps = 0;
      },
      [&](int64_t at) {
        sum += x[static_cast<size_t>(at)];
        ++taps;
      },
      [&](int64_t padded) {
        int64_t divisor = count_padding ? padded : taps;
        y.push_back(divisor ? sum / static_cast<double>(divisor) : kNan);
      });
  c.out(0, from_doubles(c.in(0).dtype(), p.out, y));
}

void eval_lp_pool(EvalContext& c) {
  Pool p = pool(c);
  std::vector<double> x = to_doubles(c.in(0)), y;
  auto power = static_cast<double>(c.node.get_int("p"));
  double sum = 0;
  over_windows(
      p, [&] { sum = 0; }, [&](int64_t at) { sum += std::pow(std::fabs(x[static_cast<size_t>(at)]), power); },
      [&](int64_t) { y.push_back(std::pow(sum, 1 / power)); });
  c.out(0, from_doubles(c.in(0).dtype(), p.out, y));
}

// The indices count in the shape that the attributes give; a `shape` larger than that adds zeros behind.
void eval_max_unpool(EvalContext& c) {
  const Tensor &x = c.in(0), &indices = c.in(1);
  Dims natural = x.dims();
  const Ints& kernel = c.node.get_ints("kernel");
  Window w = window_of(c.node, kernel.size());
  Dims low = pelton::eval(w.low, c.symbols), high = pelton::eval(w.high, c.symbols);
  for (size_t i = 0; i < kernel.size(); ++i)
    natural[i + 2] = (natural[i + 2] - 1) * w.strides[i] + kernel[i] - low[i] - high[i];
  Dims to = c.has(2) ? to_ints(c.in(2)) : natural;
  if (to.size() != natural.size())
    c.refuse(ErrorCode::bad_shape, cat("needs a shape of ", natural.size(), " sizes, not ", to));
  Tensor y = Tensor::zeros(x.dtype(), to);
  Dims from_strides = row_major_strides(natural), to_strides = row_major_strides(to);
  int64_t count = element_count(natural);
  for (int64_t i = 0; i < x.count(); ++i) {
    int64_t at = indices.get_int(i);
    if (at < 0 || at >= count)
      c.refuse(ErrorCode::bad_shape, cat("has index ", at, " outside ", count, " elements"));
    int64_t target = 0;
    for (size_t d = 0; d < natural.size(); ++d) {
      int64_t position = at / from_strides[d] % natural[d];
      if (position >= to[d])
        c.refuse(ErrorCode::bad_shape, cat("has index ", at, " of ", natural, " outside shape ", to));
      target += position * to_strides[d];
    }
    copy_element(y, target, x, i);
  }
  c.out(0, std::move(y));
}

}  // namespace pelton::ir
