// SPDX-License-Identifier: Apache-2.0
// One total order: numbers by value, NaN above all, equal elements by index.
#include "ir/ops/sort_eval.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/ops/common.h"

namespace pelton::ir {
namespace {

// x sorted along the axis and cut to its first `keep` elements.
void sorted_prefix(EvalContext& c, size_t axis, int64_t keep, bool descending) {
  const Tensor& x = c.in(0);
  DType t = x.dtype();
  std::vector<double> real;
  std::vector<int64_t> whole;
  if (is_float(t))
    real = to_doubles(x);
  else
    whole = to_ints(x);
  auto less = [&](size_t i, size_t j) {
    if (is_float(t)) return real[i] < real[j] || (std::isnan(real[j]) && !std::isnan(real[i]));
    return t == DType::u64 ? static_cast<uint64_t>(whole[i]) < static_cast<uint64_t>(whole[j])
                           : whole[i] < whole[j];
  };
  Dims lines = x.dims(), to = x.dims(), strides = row_major_strides(x.dims());
  int64_t size = lines[axis];
  lines[axis] = 1;
  to[axis] = keep;
  Dims to_strides = row_major_strides(to);
  Tensor values = Tensor::zeros(t, to), indices = Tensor::zeros(DType::i64, to);
  std::vector<int64_t> order(static_cast<size_t>(size));
  for_each_index(lines, [&](const Dims& index) {
    int64_t base = 0, target = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      base += index[d] * strides[d];
      target += index[d] * to_strides[d];
    }
    auto at = [&](int64_t k) { return static_cast<size_t>(base + k * strides[axis]); };
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
      return descending ? less(at(j), at(i)) : less(at(i), at(j));
    });
    for (int64_t k = 0; k < keep; ++k) {
      int64_t from = order[static_cast<size_t>(k)], to_index = target + k * to_strides[axis];
      copy_element(values, to_index, x, static_cast<int64_t>(at(from)));
      indices.set_int(to_index, from);
    }
  });
  c.out(0, std::move(values));
  c.out(1, std::move(indices));
}

size_t axis_of(const EvalContext& c) {
  int64_t a = c.node.get_int("axis");
  return static_cast<size_t>(a < 0 ? a + c.in(0).rank() : a);
}

}  // namespace

// Unsorted results may come in any order; the reference yields them sorted.
void eval_topk(EvalContext& c) {
  size_t axis = axis_of(c);
  int64_t size = c.in(0).dims()[axis], k = c.in(1).count() == 1 ? c.in(1).get_int(0) : -1;
  if (k < 0 || k > size)
    c.refuse(ErrorCode::bad_shape, cat("cannot pick ", k, " of ", size, " elements along axis ", axis));
  sorted_prefix(c, axis, k, c.node.get_bool("largest"));
}
void eval_sort(EvalContext& c) {
  size_t axis = axis_of(c);
  sorted_prefix(c, axis, c.in(0).dims()[axis], c.node.get_bool("descending"));
}

}  // namespace pelton::ir
