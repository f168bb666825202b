// SPDX-License-Identifier: Apache-2.0
// Small dense linear algebra.
#include "ir/ops/linalg.h"

#include <cmath>

#include "ir/ops/common.h"

namespace pelton::ir {
namespace {

void infer_det(InferContext& c) {
  c.require(supports_float(c.dtype(0)), ErrorCode::bad_type, "C1",
            cat("takes floats, not ", name(c.dtype(0))));
  Shape s = c.shape(0);
  c.require(s.size() >= 2, ErrorCode::bad_shape, "C2", cat("takes square matrices, not ", cat(s)));
  c.same(s[s.size() - 1], s[s.size() - 2], "C2");
  s.resize(s.size() - 2);
  c.output(0, c.dtype(0), s);
}

// Elimination with partial pivots on one n x n matrix.
double determinant(std::vector<double> a, size_t n) {
  double det = 1;
  for (size_t k = 0; k < n; ++k) {
    size_t pivot = k;
    for (size_t i = k + 1; i < n; ++i)
      if (std::fabs(a[i * n + k]) > std::fabs(a[pivot * n + k])) pivot = i;
    if (pivot != k) {
      for (size_t j = 0; j < n; ++j) std::swap(a[k * n + j], a[pivot * n + j]);
      det = -det;
    }
    double d = a[k * n + k];
    det *= d;
    if (d == 0) return 0;
    for (size_t i = k + 1; i < n; ++i) {
      double f = a[i * n + k] / d;
      for (size_t j = k; j < n; ++j) a[i * n + j] -= f * a[k * n + j];
    }
  }
  return det;
}

void eval_det(EvalContext& c) {
  const Tensor& x = c.in(0);
  auto n = static_cast<size_t>(x.dims().back());
  Dims dims(x.dims().begin(), x.dims().end() - 2);
  Tensor y = Tensor::zeros(x.dtype(), dims);
  for (int64_t m = 0; m < y.count(); ++m) {
    std::vector<double> a(n * n);
    for (size_t i = 0; i < a.size(); ++i)
      a[i] = x.get_double(m * static_cast<int64_t>(a.size()) + static_cast<int64_t>(i));
    y.set_double(m, determinant(std::move(a), n));
  }
  c.out(0, y);
}

}  // namespace

void add_linalg(OpRows& rows) {
  OpDef row;
  row.name = "det";
  row.family = Family::contraction;
  row.infer = infer_det;
  row.eval = eval_det;
  row.constraints = {"C1: floats", "C2: the last two dims are equal"};
  row.precision = Precision::sensitive;
  rows.push_back(row);
}

}  // namespace pelton::ir
