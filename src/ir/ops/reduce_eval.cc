// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/reduce_eval.h"

#include <cmath>

#include "ir/ops/common.h"

namespace pelton::ir {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

size_t axis_of(const EvalContext& c) {
  int64_t a = c.node.get_int("axis");
  return static_cast<size_t>(a < 0 ? a + c.in(0).rank() : a);
}

// Folds x over the axes of the node into one accumulator of type A an output, in row-major order.
template <class A, class Load, class Step>
std::vector<A> fold(const Tensor& x, const Dims& kept, A start, Load load, Step step) {
  Dims strides = row_major_strides(kept);
  for (size_t d = 0; d < kept.size(); ++d)
    if (kept[d] == 1) strides[d] = 0;
  std::vector<A> acc(static_cast<size_t>(element_count(kept)), start);
  int64_t i = 0;
  for_each_index(x.dims(), [&](const Dims& index) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
    A& a = acc[static_cast<size_t>(at)];
    a = step(a, load(i++));
  });
  return acc;
}

struct Plan {
  Dims kept;          // x's dims with 1 at reduced axes
  Dims result;        // the output's dims
  int64_t count = 1;  // elements folded into one output
};
Plan plan(const EvalContext& c) {
  const Dims& from = c.in(0).dims();
  std::vector<bool> gone(from.size(), false);
  for (int64_t a : c.node.get_ints("axes"))
    gone[static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(from.size()) : a)] = true;
  Plan p;
  for (size_t d = 0; d < from.size(); ++d) {
    p.kept.push_back(gone[d] ? 1 : from[d]);
    if (gone[d]) p.count *= from[d];
    if (!gone[d] || c.node.get_bool("keep_dims")) p.result.push_back(p.kept.back());
  }
  return p;
}

template <class Step>
void reduce_real(EvalContext& c, double start, Step step, double divisor = 1) {
  Plan p = plan(c);
  std::vector<double> wide = to_doubles(c.in(0));
  auto acc = fold<double>(
      c.in(0), p.kept, start, [&](int64_t i) { return wide[static_cast<size_t>(i)]; }, step);
  for (double& v : acc) v /= divisor;
  c.out(0, from_doubles(c.in(0).dtype(), p.result, acc));
}
template <class Step>
void reduce_int(EvalContext& c, int64_t start, Step step) {
  Plan p = plan(c);
  std::vector<int64_t> wide = to_ints(c.in(0));
  auto acc = fold<int64_t>(
      c.in(0), p.kept, start, [&](int64_t i) { return wide[static_cast<size_t>(i)]; }, step);
  c.out(0, from_ints(c.in(0).dtype(), p.result, acc));
}

int64_t wrap_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t wrap_mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// a < b in the order of the type: u64 travels as the bits of an i64.
bool int_less(DType t, int64_t a, int64_t b) {
  return t == DType::u64 ? static_cast<uint64_t>(a) < static_cast<uint64_t>(b) : a < b;
}
int64_t int_lowest(DType t) {
  return is_unsigned_int(t) || t == DType::boolean ? 0
         : t == DType::i64                         ? INT64_MIN
                                                   : static_cast<int64_t>(lowest(t));
}
int64_t int_highest(DType t) {
  return t == DType::boolean ? 1
         : t == DType::u64   ? -1
         : t == DType::i64   ? INT64_MAX
                             : static_cast<int64_t>(highest(t));
}

// Position of the best element along the axis; NaN beats everything, as in max and min.
void arg_best(EvalContext& c, bool largest) {
  const Tensor& x = c.in(0);
  size_t a = axis_of(c);
  bool last = c.node.get_bool("last");
  Dims kept = x.dims(), strides = row_major_strides(x.dims());
  int64_t size = kept[a];
  if (size == 0) c.refuse(ErrorCode::bad_shape, cat("has nothing to choose from along axis ", a));
  kept[a] = 1;
  bool real = is_float(x.dtype());
  auto better = [&](int64_t i, int64_t j) {  // element i strictly before element j
    if (!real)
      return largest ? int_less(x.dtype(), x.get_int(j), x.get_int(i))
                     : int_less(x.dtype(), x.get_int(i), x.get_int(j));
    double u = x.get_double(i), v = x.get_double(j);
    if (std::isnan(v)) return false;
    return std::isnan(u) || (largest ? u > v : u < v);
  };
  std::vector<int64_t> out;
  for_each_index(kept, [&](const Dims& index) {
    int64_t base = 0, best = 0;
    for (size_t d = 0; d < index.size(); ++d) base += index[d] * strides[d];
    for (int64_t k = 1; k < size; ++k) {
      int64_t i = base + k * strides[a], j = base + best * strides[a];
      if (last ? !better(j, i) : better(i, j)) best = k;
    }
    out.push_back(best);
  });
  if (!c.node.get_bool("keep_dims")) kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(a));
  c.out(0, from_ints(DType::i64, kept, out));
}

// Running fold along the axis. W is the wide type.
template <class W, class Step>
std::vector<W> scan(const EvalContext& c, const std::vector<W>& x, W start, Step step) {
  const Dims& dims = c.in(0).dims();
  size_t a = axis_of(c);
  bool exclusive = c.node.get_bool("exclusive"), reverse = c.node.get_bool("reverse");
  Dims lines = dims, strides = row_major_strides(dims);
  lines[a] = dims[a] == 0 ? 0 : 1;
  std::vector<W> out(x.size());
  for_each_index(lines, [&](const Dims& index) {
    int64_t base = 0;
    for (size_t d = 0; d < index.size(); ++d) base += index[d] * strides[d];
    W acc = start;
    for (int64_t k = 0; k < dims[a]; ++k) {
      auto at = static_cast<size_t>(base + (reverse ? dims[a] - 1 - k : k) * strides[a]);
      if (exclusive) out[at] = acc;
      acc = step(acc, x[at]);
      if (!exclusive) out[at] = acc;
    }
  });
  return out;
}

}  // namespace

void eval_reduce_sum(EvalContext& c) {
  if (is_float(c.in(0).dtype()))
    reduce_real(c, 0, [](double a, double v) { return a + v; });
  else
    reduce_int(c, 0, wrap_add);
}

// Integers: the exact sum divided with truncation; nothing to average gives 0.
void eval_reduce_mean(EvalContext& c) {
  Plan p = plan(c);
  if (is_float(c.in(0).dtype()))
    return reduce_real(
        c, 0, [](double a, double v) { return a + v; }, p.count ? static_cast<double>(p.count) : 0.0);
  std::vector<int64_t> wide = to_ints(c.in(0));
  bool is_u64 = c.in(0).dtype() == DType::u64;
  auto acc = fold<__int128>(
      c.in(0), p.kept, 0,
      [&](int64_t i) -> __int128 {
        int64_t v = wide[static_cast<size_t>(i)];
        return is_u64 ? static_cast<__int128>(static_cast<uint64_t>(v)) : v;
      },
      [](__int128 a, __int128 v) { return a + v; });
  std::vector<int64_t> means;
  for (__int128 a : acc) means.push_back(p.count ? static_cast<int64_t>(a / p.count) : 0);
  c.out(0, from_ints(c.in(0).dtype(), p.result, means));
}

void eval_reduce_max(EvalContext& c) {
  DType t = c.in(0).dtype();
  if (is_float(t))
    return reduce_real(
        c, -kInf, [](double a, double v) { return std::isnan(a) || std::isnan(v) ? kNan : std::max(a, v); });
  reduce_int(c, int_lowest(t), [t](int64_t a, int64_t v) { return int_less(t, a, v) ? v : a; });
}
void eval_reduce_min(EvalContext& c) {
  DType t = c.in(0).dtype();
  if (is_float(t))
    return reduce_real(
        c, kInf, [](double a, double v) { return std::isnan(a) || std::isnan(v) ? kNan : std::min(a, v); });
  reduce_int(c, int_highest(t), [t](int64_t a, int64_t v) { return int_less(t, v, a) ? v : a; });
}
void eval_reduce_prod(EvalContext& c) {
  if (is_float(c.in(0).dtype()))
    reduce_real(c, 1, [](double a, double v) { return a * v; });
  else
    reduce_int(c, 1, wrap_mul);
}

void eval_arg_max(EvalContext& c) {
  arg_best(c, true);
}
void eval_arg_min(EvalContext& c) {
  arg_best(c, false);
}

void eval_cumsum(EvalContext& c) {
  const Tensor& x = c.in(0);
  if (is_float(x.dtype()))
    c.out(0, from_doubles(x.dtype(), x.dims(),
                          scan<double>(c, to_doubles(x), 0, [](double a, double v) { return a + v; })));
  else
    c.out(0, from_ints(x.dtype(), x.dims(), scan<int64_t>(c, to_ints(x), 0, wrap_add)));
}
void eval_cumprod(EvalContext& c) {
  const Tensor& x = c.in(0);
  if (is_float(x.dtype()))
    c.out(0, from_doubles(x.dtype(), x.dims(),
                          scan<double>(c, to_doubles(x), 1, [](double a, double v) { return a * v; })));
  else
    c.out(0, from_ints(x.dtype(), x.dims(), scan<int64_t>(c, to_ints(x), 1, wrap_mul)));
}

}  // namespace pelton::ir
