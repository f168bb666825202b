// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/index_eval.h"

#include <cmath>

#include "ir/ops/common.h"

namespace pelton::ir {
namespace {

size_t axis_of(const EvalContext& c) {
  int64_t a = c.node.get_int("axis");
  return static_cast<size_t>(a < 0 ? a + c.in(0).rank() : a);
}

int64_t checked(const EvalContext& c, int64_t index, int64_t size, size_t axis) {
  if (index < -size || index >= size)
    c.refuse(ErrorCode::bad_shape, cat("has index ", index, " outside axis ", axis, " of size ", size));
  return index < 0 ? index + size : index;
}

Tensor empty_like(const Tensor& x, const Dims& dims) {
  return x.dtype() == DType::string ? Tensor(x.dtype(), dims) : Tensor::zeros(x.dtype(), dims);
}

// Writes updates one at a time: the last wins without a reduction, else they fold in the wide type and round
// once, in finish().
class Scatter {
 public:
  explicit Scatter(const EvalContext& c) : kind_(c.node.get_text("reduction")), updates_(c.in(2)) {
    out_ = c.in(0).clone();
    if (kind_ == "none") return;
    if (is_float(out_.dtype())) {
      real_ = to_doubles(out_);
      real_updates_ = to_doubles(updates_);
    } else {
      whole_ = to_ints(out_);
      whole_updates_ = to_ints(updates_);
    }
  }
  void write(int64_t target, int64_t update) {
    auto to = static_cast<size_t>(target), from = static_cast<size_t>(update);
    if (kind_ == "none")
      copy_element(out_, target, updates_, update);
    else if (is_float(out_.dtype()))
      fold_real(real_[to], real_updates_[from]);
    else
      fold_int(whole_[to], whole_updates_[from]);
  }
  Tensor finish() {
    if (kind_ == "none") return std::move(out_);
    return is_float(out_.dtype()) ? from_doubles(out_.dtype(), out_.dims(), real_)
                                  : from_ints(out_.dtype(), out_.dims(), whole_);
  }

 private:
  void fold_real(double& a, double v) const {
    if (kind_ == "add")
      a += v;
    else if (kind_ == "mul")
      a *= v;
    else if (std::isnan(a) || std::isnan(v))
      a = std::nan("");
    else
      a = kind_ == "max" ? std::max(a, v) : std::min(a, v);
  }
  void fold_int(int64_t& a, int64_t v) const {
    auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(v);
    bool less = out_.dtype() == DType::u64 ? x < y : a < v;
    if (kind_ == "add")
      a = static_cast<int64_t>(x + y);
    else if (kind_ == "mul")
      a = static_cast<int64_t>(x * y);
    else if (less == (kind_ == "max"))
      a = v;
  }
  const std::string& kind_;
  const Tensor& updates_;
  Tensor out_;
  std::vector<double> real_, real_updates_;
  std::vector<int64_t> whole_, whole_updates_;
};

// Offset in `strides` of the index tuple that starts at element `at` of `tuples`, axes from `first_axis`.
int64_t tuple_offset(const EvalContext& c, const Tensor& tuples, int64_t at, size_t length, const Dims& dims,
                     const Dims& strides, size_t first_axis) {
  int64_t offset = 0;
  for (size_t k = 0; k < length; ++k) {
    size_t axis = first_axis + k;
    offset += checked(c, tuples.get_int(at + static_cast<int64_t>(k)), dims[axis], axis) * strides[axis];
  }
  return offset;
}

int64_t product(const Dims& dims, size_t from, size_t to) {
  return element_count(
      Dims(dims.begin() + static_cast<std::ptrdiff_t>(from), dims.begin() + static_cast<std::ptrdiff_t>(to)));
}

}  // namespace

void eval_gather(EvalContext& c) {
  const Tensor &x = c.in(0), &indices = c.in(1);
  size_t axis = axis_of(c);
  const Dims& dims = x.dims();
  int64_t outer = product(dims, 0, axis), inner = product(dims, axis + 1, dims.size()), size = dims[axis];
  Dims to(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(axis));
  to.insert(to.end(), indices.dims().begin(), indices.dims().end());
  to.insert(to.end(), dims.begin() + static_cast<std::ptrdiff_t>(axis) + 1, dims.end());
  std::vector<int64_t> picks = to_ints(indices);
  for (int64_t& p : picks) p = checked(c, p, size, axis);
  Tensor out = empty_like(x, to);
  int64_t at = 0;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t p : picks)
      for (int64_t i = 0; i < inner; ++i) copy_element(out, at++, x, (o * size + p) * inner + i);
  c.out(0, std::move(out));
}

void eval_gather_elements(EvalContext& c) {
  const Tensor &x = c.in(0), &indices = c.in(1);
  size_t axis = axis_of(c);
  Dims strides = row_major_strides(x.dims());
  int64_t i = 0;
  c.out(0, gather_elements_by(x, indices.dims(), [&](const Dims& index) {
          int64_t at = 0;
          for (size_t d = 0; d < index.size(); ++d)
            at += checked(c, d == axis ? indices.get_int(i) : index[d], x.dims()[d], d) * strides[d];
          ++i;
          return at;
        }));
}

void eval_gather_nd(EvalContext& c) {
  const Tensor &x = c.in(0), &tuples = c.in(1);
  auto batch = static_cast<size_t>(c.node.get_int("batch_dims")),
       length = static_cast<size_t>(tuples.dims().back());
  Dims strides = row_major_strides(x.dims()), to(tuples.dims().begin(), tuples.dims().end() - 1);
  int64_t lines = element_count(to), batches = product(to, 0, batch), a_batch = batches ? lines / batches : 0,
          slice = product(x.dims(), batch + length, x.dims().size()),
          x_batch = product(x.dims(), batch, x.dims().size());
  if (batches != product(x.dims(), 0, batch))
    c.refuse(ErrorCode::bad_shape, cat("has other batch dims in ", x.dims(), " than in ", tuples.dims()));
  to.insert(to.end(), x.dims().begin() + static_cast<std::ptrdiff_t>(batch + length), x.dims().end());
  Tensor out = empty_like(x, to);
  for (int64_t line = 0; line < lines; ++line) {
    int64_t from = line / a_batch * x_batch +
                   tuple_offset(c, tuples, line * tuples.dims().back(), length, x.dims(), strides, batch);
    for (int64_t i = 0; i < slice; ++i) copy_element(out, line * slice + i, x, from + i);
  }
  c.out(0, std::move(out));
}

void eval_scatter_elements(EvalContext& c) {
  const Tensor &x = c.in(0), &indices = c.in(1);
  if (indices.dims() != c.in(2).dims())
    c.refuse(ErrorCode::bad_shape,
             cat("needs one update an index, but shapes are ", c.in(2).dims(), " and ", indices.dims()));
  size_t axis = axis_of(c);
  Dims strides = row_major_strides(x.dims());
  Scatter scatter(c);
  int64_t i = 0;
  for_each_index(indices.dims(), [&](const Dims& index) {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d)
      at += checked(c, d == axis ? indices.get_int(i) : index[d], x.dims()[d], d) * strides[d];
    scatter.write(at, i++);
  });
  c.out(0, scatter.finish());
}

void eval_scatter_nd(EvalContext& c) {
  const Tensor &x = c.in(0), &tuples = c.in(1);
  auto length = static_cast<size_t>(tuples.dims().back());
  Dims strides = row_major_strides(x.dims()), lines(tuples.dims().begin(), tuples.dims().end() - 1);
  int64_t slice = product(x.dims(), length, x.dims().size()), count = element_count(lines);
  if (c.in(2).count() != count * slice)
    c.refuse(ErrorCode::bad_shape, cat("needs ", count * slice, " updates, not ", c.in(2).str()));
  Scatter scatter(c);
  for (int64_t line = 0; line < count; ++line) {
    int64_t to = tuple_offset(c, tuples, line * tuples.dims().back(), length, x.dims(), strides, 0);
    for (int64_t i = 0; i < slice; ++i) scatter.write(to + i, line * slice + i);
  }
  c.out(0, scatter.finish());
}

}  // namespace pelton::ir
