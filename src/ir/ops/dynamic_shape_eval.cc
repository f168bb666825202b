// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "ir/ops/common.h"
#include "ir/ops/dynamic_shape.h"
#include "ir/ops/shape_eval.h"

namespace pelton::ir {
namespace {

// Axes named in input i, or 0, 1, ... count - 1.
Ints axes_of(const EvalContext& c, size_t i, size_t count) {
  Ints axes;
  if (!c.has(i)) {
    for (size_t d = 0; d < count; ++d) axes.push_back(static_cast<int64_t>(d));
  } else {
    axes = to_ints(c.in(i));
  }
  int64_t rank = c.in(0).rank();
  if (axes.size() != count)
    c.refuse(ErrorCode::bad_shape, cat("names ", axes.size(), " axes for ", count, " entries"));
  for (int64_t& a : axes) {
    if (a < -rank || a >= rank) c.refuse(ErrorCode::bad_shape, cat("names axis ", a, " of rank ", rank));
    if (a < 0) a += rank;
  }
  return axes;
}

Dims sizes_of(const EvalContext& c, size_t i) {
  Dims dims = to_ints(c.in(i));
  for (int64_t d : dims)
    if (d < 0) c.refuse(ErrorCode::bad_shape, cat("has a negative size in ", dims));
  return dims;
}

}  // namespace

void eval_dynamic_reshape(EvalContext& c) {
  const Tensor& x = c.in(0);
  Dims to = to_ints(c.in(1));
  int64_t known = 1, open = -1;
  for (size_t d = 0; d < to.size(); ++d) {
    if (to[d] == 0 && !c.node.get_bool("allow_zero")) {
      if (static_cast<int64_t>(d) >= x.rank())
        c.refuse(ErrorCode::bad_shape, cat("copies size ", d, " of ", x.str()));
      to[d] = x.dims()[d];
    }
    if (to[d] == -1 && open < 0)
      open = static_cast<int64_t>(d);
    else if (to[d] < 0)
      c.refuse(ErrorCode::bad_shape, cat("has sizes ", to));
    else
      known *= to[d];
  }
  if (open >= 0) to[static_cast<size_t>(open)] = known ? x.count() / known : 0;
  if (element_count(to) != x.count())
    c.refuse(ErrorCode::bad_shape, cat("cannot view ", x.str(), " as ", to));
  c.out(0, x.reshaped(to));
}

void eval_dynamic_broadcast(EvalContext& c) {
  c.out(0, broadcast_tensor(c.in(0), broadcast_dims({c.in(0).dims(), sizes_of(c, 1)})));
}

void eval_dynamic_slice(EvalContext& c) {
  const Tensor& x = c.in(0);
  Ints starts = to_ints(c.in(1)), ends = to_ints(c.in(2)), axes = axes_of(c, 3, starts.size());
  Ints steps = c.has(4) ? to_ints(c.in(4)) : Ints(starts.size(), 1);
  if (ends.size() != starts.size() || steps.size() != starts.size())
    c.refuse(ErrorCode::bad_shape,
             cat("has ", starts.size(), " starts, ", ends.size(), " ends and ", steps.size(), " steps"));
  Dims sizes;
  for (size_t k = 0; k < starts.size(); ++k) {
    int64_t extent = x.dims()[static_cast<size_t>(axes[k])], step = steps[k];
    if (step == 0) c.refuse(ErrorCode::usage, "has step 0");
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? extent : extent - 1;
    auto bounded = [&](int64_t v) { return std::clamp(v < 0 ? v + extent : v, low, std::max(low, high)); };
    int64_t first = bounded(starts[k]), last = bounded(ends[k]);
    int64_t span = step > 0 ? last - first : first - last;
    // Written without |step|, which INT64_MIN lacks.
    sizes.push_back(span <= 0 ? 0 : 1 + (step > 0 ? (span - 1) / step : -((span - 1) / step)));
    starts[k] = first;
    if (sizes.back() <= 1) steps[k] = 1;
  }
  c.out(0, slice_tensor(x, axes, starts, sizes, steps));
}

void eval_dynamic_pad(EvalContext& c) {
  const Tensor& x = c.in(0);
  Dims pads = to_ints(c.in(1)), low(x.dims().size(), 0), high = low;
  if (pads.size() % 2)
    c.refuse(ErrorCode::bad_shape, cat("needs low and high pads, not ", pads.size(), " values"));
  size_t half = pads.size() / 2;
  Ints axes = axes_of(c, 3, half);
  for (size_t k = 0; k < half; ++k) {
    low[static_cast<size_t>(axes[k])] = pads[k];
    high[static_cast<size_t>(axes[k])] = pads[half + k];
  }
  c.out(0, pad_tensor(x, low, high, c.node.get_text("mode"), c.has(2) ? c.in(2) : Tensor()));
}

void eval_dynamic_tile(EvalContext& c) {
  Dims repeats = sizes_of(c, 1);
  if (static_cast<int64_t>(repeats.size()) != c.in(0).rank())
    c.refuse(ErrorCode::bad_shape, cat("needs ", c.in(0).rank(), " repeats, not ", repeats.size()));
  c.out(0, tile_tensor(c.in(0), repeats));
}

void eval_dynamic_fill(EvalContext& c) {
  if (c.in(0).count() != 1) c.refuse(ErrorCode::bad_shape, cat("needs one value, not ", c.in(0).str()));
  c.out(0, gather_elements_by(c.in(0), sizes_of(c, 1), [](const Dims&) { return int64_t{0}; }));
}

// start + i * delta, each rounded once from f64; integers exact.
void eval_range(EvalContext& c) {
  DType t = c.in(0).dtype();
  for (size_t i = 0; i < 3; ++i)
    if (c.in(i).count() != 1) c.refuse(ErrorCode::bad_shape, cat("needs single values, not ", c.in(i).str()));
  if (is_float(t)) {
    double start = c.in(0).get_double(0), limit = c.in(1).get_double(0), delta = c.in(2).get_double(0);
    double size = std::ceil((limit - start) / delta);
    if (delta == 0 || !std::isfinite(size) || size > 1e12)
      c.refuse(ErrorCode::usage, cat("cannot count from ", start, " to ", limit, " by ", delta));
    std::vector<double> v;
    for (int64_t i = 0; i < static_cast<int64_t>(size); ++i)
      v.push_back(start + static_cast<double>(i) * delta);
    c.out(0, from_doubles(t, {static_cast<int64_t>(v.size())}, v));
    return;
  }
  __int128 start = c.in(0).get_int(0), limit = c.in(1).get_int(0), delta = c.in(2).get_int(0);
  if (t == DType::u64) {
    start = static_cast<uint64_t>(c.in(0).get_int(0));
    limit = static_cast<uint64_t>(c.in(1).get_int(0));
    delta = static_cast<uint64_t>(c.in(2).get_int(0));
  }
  if (delta == 0) c.refuse(ErrorCode::usage, "has delta 0");
  __int128 span = delta > 0 ? limit - start : start - limit, step = delta > 0 ? delta : -delta;
  int64_t size = span > 0 ? static_cast<int64_t>((span + step - 1) / step) : 0;
  Tensor out = Tensor::zeros(t, {size});
  for (int64_t i = 0; i < size; ++i) out.set_int(i, static_cast<int64_t>(start + i * delta));
  c.out(0, std::move(out));
}

}  // namespace pelton::ir
