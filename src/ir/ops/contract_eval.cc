// SPDX-License-Identifier: Apache-2.0
// Floats and 8-bit integers (whose sums a double holds exactly) multiply in f64; wider integers wrap in 64
// bits.
#include "ir/ops/contract_eval.h"

#include "ir/ops/common.h"
#include "ir/ops/gemm.h"

namespace pelton::ir {
namespace {

// Dims of an operand as [B..., rows, columns] as it is stored.
Dims matrix_dims(const Tensor& t, bool left) {
  Dims d = t.dims();
  if (d.size() == 1) d.insert(left ? d.begin() : d.end(), 1);
  return d;
}

template <class T>
std::vector<T> wide(const Tensor& t) {
  if constexpr (std::is_same_v<T, double>) {
    return to_doubles(t);
  } else {
    std::vector<int64_t> v = to_ints(t);
    return std::vector<T>(v.begin(), v.end());
  }
}

// Subtracts the zero point: one value, one a row or column of the matrices `d`, or broadcast over all of it.
template <class T>
void subtract_zero(std::vector<T>& x, const Dims& d, const Tensor& zero, bool rows) {
  std::vector<T> z = wide<T>(zero);
  if (z.size() == 1 || zero.rank() <= 1) {
    auto columns = static_cast<size_t>(d.back()), height = static_cast<size_t>(d[d.size() - 2]);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] -= z.size() == 1 ? z[0] : rows ? z[i / columns % height] : z[i % columns];
    return;
  }
  Dims strides = row_major_strides(zero.dims());
  size_t i = 0;
  for_each_index(d, [&](const Dims& index) {
    x[i++] -= z[static_cast<size_t>(broadcast_offset(index, zero.dims(), strides))];
  });
}

template <class T>
void transpose_last(std::vector<T>& x, Dims& d) {
  auto rows = static_cast<size_t>(d[d.size() - 2]), columns = static_cast<size_t>(d.back());
  std::vector<T> out(x.size());
  size_t matrix = rows * columns;
  for (size_t base = 0; matrix && base < x.size(); base += matrix)
    for (size_t r = 0; r < rows; ++r)
      for (size_t q = 0; q < columns; ++q) out[base + q * rows + r] = x[base + r * columns + q];
  x.swap(out);
  std::swap(d[d.size() - 1], d[d.size() - 2]);
}

template <class T>
std::vector<T> operand(const EvalContext& c, size_t i, Dims& d) {
  d = matrix_dims(c.in(i), i == 0);
  std::vector<T> x = wide<T>(c.in(i));
  if (c.node.get_bool(i == 0 ? "transpose_a" : "transpose_b")) transpose_last(x, d);
  if (c.has(i + 2)) subtract_zero(x, d, c.in(i + 2), i == 0);
  return x;
}

template <class T>
std::vector<T> multiply(const EvalContext& c, Dims& out_dims) {
  Dims a_dims, b_dims;
  std::vector<T> a = operand<T>(c, 0, a_dims), b = operand<T>(c, 1, b_dims);
  int64_t m = a_dims[a_dims.size() - 2], k = a_dims.back(), n = b_dims.back();
  if (k != b_dims[b_dims.size() - 2])
    c.refuse(ErrorCode::bad_shape, cat("sums over ", k, " on the left but ", b_dims[b_dims.size() - 2],
                                       " on the right: shapes ", c.in(0).dims(), " and ", c.in(1).dims()));
  a_dims.resize(a_dims.size() - 2);
  b_dims.resize(b_dims.size() - 2);
  Dims batch = broadcast_dims({a_dims, b_dims}), a_strides = row_major_strides(a_dims),
       b_strides = row_major_strides(b_dims);
  out_dims = batch;
  if (c.in(0).rank() > 1) out_dims.push_back(m);
  if (c.in(1).rank() > 1) out_dims.push_back(n);
  std::vector<T> out(static_cast<size_t>(element_count(out_dims)), T{0});
  T* at = out.data();
  for_each_index(batch, [&](const Dims& index) {
    reference_gemm(m, n, k, a.data() + broadcast_offset(index, a_dims, a_strides) * m * k,
                   b.data() + broadcast_offset(index, b_dims, b_strides) * k * n, at);
    at += m * n;
  });
  return out;
}

}  // namespace

void eval_matmul(EvalContext& c) {
  Dims dims;
  DType t = c.out_dtype();
  if (is_float(t)) {
    std::vector<double> sums = multiply<double>(c, dims);
    c.out(0, from_doubles(t, dims, sums));
  } else if (t == DType::i32 && c.in(0).dtype() != DType::i32) {
    std::vector<double> sums = multiply<double>(c, dims);
    c.out(0, from_ints(t, dims, std::vector<int64_t>(sums.begin(), sums.end())));
  } else {
    std::vector<uint64_t> sums = multiply<uint64_t>(c, dims);
    c.out(0, from_ints(t, dims, std::vector<int64_t>(sums.begin(), sums.end())));
  }
}

}  // namespace pelton::ir
