// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/ops/common.h"
#include "ir/ops/index_eval.h"

namespace pelton::ir {
namespace {

size_t normal_axis(const EvalContext& c, std::string_view attr, int64_t rank) {
  int64_t a = c.node.get_int(attr);
  return static_cast<size_t>(a < 0 ? a + rank : a);
}

// Entries `picks` of an axis.
Tensor take(const Tensor& x, size_t axis, const std::vector<int64_t>& picks) {
  Dims to = x.dims(), strides = row_major_strides(x.dims());
  to[axis] = static_cast<int64_t>(picks.size());
  return gather_elements_by(x, to, [&](const Dims& index) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d)
      at += (d == axis ? picks[static_cast<size_t>(index[d])] : index[d]) * strides[d];
    return at;
  });
}

// Three-way order of two elements; NaN is largest and equal to itself.
int compare(const Tensor& x, int64_t i, int64_t j) {
  if (x.dtype() == DType::string) {
    int r = x.strings()[static_cast<size_t>(i)].compare(x.strings()[static_cast<size_t>(j)]);
    return (r > 0) - (r < 0);
  }
  if (is_float(x.dtype())) {
    double a = x.get_double(i), b = x.get_double(j);
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) - std::isnan(b);
    return (a > b) - (a < b);
  }
  int64_t a = x.get_int(i), b = x.get_int(j);
  if (x.dtype() == DType::u64) {
    auto u = static_cast<uint64_t>(a), v = static_cast<uint64_t>(b);
    return (u > v) - (u < v);
  }
  return (a > b) - (a < b);
}

}  // namespace

// An index in [-depth, depth) that is whole sets the on value; any other sets none.
void eval_one_hot(EvalContext& c) {
  const Tensor &indices = c.in(0), &values = c.in(2);
  if (c.in(1).count() != 1 || values.count() != 2)
    c.refuse(ErrorCode::bad_shape,
             cat("needs one depth and two values, not ", c.in(1).str(), " and ", values.str()));
  auto depth = static_cast<int64_t>(c.in(1).get_double(0));
  if (depth < 0) c.refuse(ErrorCode::bad_shape, cat("has negative depth ", depth));
  size_t axis = normal_axis(c, "axis", indices.rank() + 1);
  Dims to = indices.dims();
  to.insert(to.begin() + static_cast<std::ptrdiff_t>(axis), depth);
  Dims strides = row_major_strides(indices.dims());
  std::vector<double> at = to_doubles(indices);
  c.out(0, gather_elements_by(values, to, [&](const Dims& index) -> int64_t {
          int64_t i = 0;
          for (size_t d = 0, k = 0; d < index.size(); ++d)
            if (d != axis) i += index[d] * strides[k++];
          double v = at[static_cast<size_t>(i)];
          if (v < 0) v += static_cast<double>(depth);
          return v == static_cast<double>(index[axis]);
        }));
}

void eval_non_zero(EvalContext& c) {
  const Tensor& x = c.in(0);
  std::vector<Dims> found;
  int64_t i = 0;
  for_each_index(x.dims(), [&](const Dims& index) {
    bool zero = is_float(x.dtype()) ? x.get_double(i) == 0 : x.get_int(i) == 0;
    if (!zero) found.push_back(index);
    ++i;
  });
  auto count = static_cast<int64_t>(found.size());
  Tensor out = Tensor::zeros(DType::i64, {x.rank(), count});
  for (int64_t d = 0; d < x.rank(); ++d)
    for (int64_t k = 0; k < count; ++k)
      out.set_int(d * count + k, found[static_cast<size_t>(k)][static_cast<size_t>(d)]);
  c.out(0, std::move(out));
}

void eval_compress(EvalContext& c) {
  const Tensor& x = c.in(0);
  size_t axis = normal_axis(c, "axis", x.rank());
  if (c.in(1).count() > x.dims()[axis])
    c.refuse(ErrorCode::bad_shape,
             cat("has ", c.in(1).count(), " conditions for axis ", axis, " of ", x.str()));
  std::vector<int64_t> picks;
  for (int64_t i = 0; i < c.in(1).count(); ++i)
    if (c.in(1).get_int(i)) picks.push_back(i);
  c.out(0, take(x, axis, picks));
}

void eval_unique(EvalContext& c) {
  bool flat = c.node.get_int("axis") == -1000;
  Tensor x = flat ? c.in(0).reshaped({c.in(0).count()}) : c.in(0);
  size_t axis = flat ? 0 : normal_axis(c, "axis", x.rank());
  Dims strides = row_major_strides(x.dims()), slice = x.dims();
  slice[axis] = 1;
  int64_t size = x.dims()[axis];
  std::vector<int64_t> offsets;  // of the elements of slice 0
  for_each_index(slice, [&](const Dims& index) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
    offsets.push_back(at);
  });
  auto order = [&](int64_t i, int64_t j) {
    for (int64_t at : offsets)
      if (int r = compare(x, at + i * strides[axis], at + j * strides[axis])) return r;
    return 0;
  };
  std::vector<int64_t> by_value(static_cast<size_t>(size));
  std::iota(by_value.begin(), by_value.end(), 0);
  std::stable_sort(by_value.begin(), by_value.end(), [&](int64_t i, int64_t j) { return order(i, j) < 0; });
  // Groups of equal slices; the first member is the earliest because the sort is stable.
  std::vector<int64_t> first, inverse(by_value.size()), counts;
  for (size_t k = 0; k < by_value.size(); ++k) {
    if (k == 0 || order(by_value[k - 1], by_value[k]) != 0) {
      first.push_back(by_value[k]);
      counts.push_back(0);
    }
    inverse[static_cast<size_t>(by_value[k])] = static_cast<int64_t>(first.size()) - 1;
    ++counts.back();
  }
  if (!c.node.get_bool("sorted")) {
    std::vector<int64_t> rank(first.size()), place(first.size()), new_first, new_counts;
    std::iota(rank.begin(), rank.end(), 0);
    std::sort(rank.begin(), rank.end(), [&](int64_t a, int64_t b) {
      return first[static_cast<size_t>(a)] < first[static_cast<size_t>(b)];
    });
    for (size_t k = 0; k < rank.size(); ++k) {
      auto group = static_cast<size_t>(rank[k]);
      place[group] = static_cast<int64_t>(k);
      new_first.push_back(first[group]);
      new_counts.push_back(counts[group]);
    }
    for (int64_t& g : inverse) g = place[static_cast<size_t>(g)];
    first = new_first;
    counts = new_counts;
  }
  auto n = static_cast<int64_t>(first.size());
  c.out(0, take(x, axis, first));
  c.out(1, Tensor::from<int64_t>({n}, first));
  c.out(2, Tensor::from<int64_t>({size}, inverse));
  c.out(3, Tensor::from<int64_t>({n}, counts));
}

void eval_reverse_sequence(EvalContext& c) {
  const Tensor& x = c.in(0);
  size_t batch = normal_axis(c, "batch_axis", x.rank()), time = normal_axis(c, "time_axis", x.rank());
  std::vector<int64_t> lengths = to_ints(c.in(1));
  for (int64_t n : lengths)
    if (n < 0 || n > x.dims()[time])
      c.refuse(ErrorCode::bad_shape, cat("has length ", n, " for a time axis of ", x.dims()[time]));
  Dims strides = row_major_strides(x.dims());
  c.out(0, gather_elements_by(x, x.dims(), [&](const Dims& index) {
          int64_t at = 0, length = lengths[static_cast<size_t>(index[batch])];
          for (size_t d = 0; d < index.size(); ++d)
            at += (d == time && index[d] < length ? length - 1 - index[d] : index[d]) * strides[d];
          return at;
        }));
}

// Bag b holds the indices from offsets[b] up to offsets[b + 1] or the end; an empty bag yields zeros.
void eval_embedding_bag(EvalContext& c) {
  const Tensor& table = c.in(0);
  std::vector<int64_t> indices = to_ints(c.in(1)), offsets = to_ints(c.in(2));
  std::vector<double> x = to_doubles(table), weights;
  if (c.has(3)) weights = to_doubles(c.in(3));
  const std::string& mode = c.node.get_text("mode");
  int64_t rows = table.dims()[0], width = table.dims()[1];
  std::vector<double> out(offsets.size() * static_cast<size_t>(width), 0.0);
  for (size_t b = 0; b < offsets.size(); ++b) {
    int64_t from = offsets[b],
            to = b + 1 < offsets.size() ? offsets[b + 1] : static_cast<int64_t>(indices.size());
    if (from < 0 || from > to || to > static_cast<int64_t>(indices.size()) || (b == 0 && from != 0))
      c.refuse(ErrorCode::bad_shape,
               cat("needs offsets that rise from 0 to at most ", indices.size(), ", not ", offsets));
    for (int64_t i = from; i < to; ++i) {
      int64_t row = indices[static_cast<size_t>(i)];
      if (row < -rows || row >= rows)
        c.refuse(ErrorCode::bad_shape, cat("has index ", row, " outside ", rows, " rows"));
      if (row < 0) row += rows;
      for (int64_t d = 0; d < width; ++d) {
        double v = x[static_cast<size_t>(row * width + d)];
        double& a = out[b * static_cast<size_t>(width) + static_cast<size_t>(d)];
        if (mode == "max")
          a = i == from || std::isnan(v) || v > a ? v : a;
        else
          a += v * (weights.empty() ? 1 : weights[static_cast<size_t>(i)]);
      }
    }
    if (mode == "mean" && to > from)
      for (int64_t d = 0; d < width; ++d)
        out[b * static_cast<size_t>(width) + static_cast<size_t>(d)] /= static_cast<double>(to - from);
  }
  c.out(0, from_doubles(table.dtype(), {static_cast<int64_t>(offsets.size()), width}, out));
}

// The past with entries [w, w + L) along the axis replaced by the update, w per batch entry; circular wraps.
void eval_tensor_scatter(EvalContext& c) {
  const Tensor &past = c.in(0), &update = c.in(1);
  size_t axis = normal_axis(c, "axis", past.rank());
  bool circular = c.node.get_bool("circular");
  Dims strides = row_major_strides(past.dims());
  int64_t size = past.dims()[axis], length = update.dims()[axis];
  Tensor out = past.clone();
  int64_t i = 0;
  for_each_index(update.dims(), [&](const Dims& index) {
    int64_t start = c.has(2) ? c.in(2).get_int(index[0]) : 0;
    if (start < 0 || (!circular && start + length > size))
      c.refuse(ErrorCode::bad_shape,
               cat("cannot write ", length, " entries at ", start, " of axis ", axis, " with size ", size));
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d)
      at += (d == axis ? (start + index[d]) % size : index[d]) * strides[d];
    copy_element(out, at, update, i++);
  });
  c.out(0, std::move(out));
}

}  // namespace pelton::ir
