// SPDX-License-Identifier: Apache-2.0
// Matrix products.
#include "onnx/import/helpers.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

void matmul(NodeContext& c) {
  c.out(0, c.b.matmul(c.in(0), c.in(1)));
}

// alpha * op(A) op(B) + beta * C
void gemm(NodeContext& c) {
  for (size_t i : {0, 1})
    if (c.b.type(c.in(i)).rank() != 2)
      c.refuse(ErrorCode::bad_shape, cat("takes matrices, not ", c.b.type(c.in(i)).str()));
  ValueId y =
      c.b.op("matmul", {c.in(0), c.in(1)},
             {{"transpose_a", c.get_int("transA", 0) != 0}, {"transpose_b", c.get_int("transB", 0) != 0}});
  double alpha = c.get_real("alpha", 1), beta = c.get_real("beta", 1);
  bool integers = is_int(c.b.dtype(c.in(0)));
  if (integers) y = c.b.cast(y, c.b.dtype(c.in(0)));
  if (alpha != 1) y = c.b.mul(y, c.b.like(y, alpha));
  if (c.has(2) && beta != 0) {
    ValueId bias = c.in(2);
    if (beta != 1) bias = c.b.mul(bias, c.b.like(bias, beta));
    y = c.b.add(y, bias);
  }
  c.out(0, y);
}

// Zero points of rank 1 belong to rows of A and columns of B.
void matmul_integer(NodeContext& c) {
  ValueId a = c.in(0), b = c.in(1), a_zero = c.opt(2), b_zero = c.opt(3);
  if (a_zero && c.b.rank(a_zero) == 1) a_zero = c.b.unsqueeze(a_zero, {1});
  std::vector<ValueId> inputs{a, b, a_zero, b_zero};
  while (!inputs.back()) inputs.pop_back();
  c.out(0, c.b.op("matmul", inputs));
}

void einsum(NodeContext& c) {
  c.out(0, c.b.op("einsum", c.all_inputs(), {{"equation", c.get_text("equation", "")}}));
}

// Determinants of the last two axes.
void det(NodeContext& c) {
  ValueId x = c.in(0);
  const Shape shape = c.b.shape(x);
  if (shape.size() < 2) c.refuse(ErrorCode::bad_shape, cat("needs matrices, not ", c.b.type(x).str()));
  c.out(0, c.b.op("det", {x}));
}

}  // namespace

void add_matmul(ImportTable& table) {
  table.add("MatMul", matmul);
  table.add("Gemm", gemm);
  table.add("MatMulInteger", matmul_integer);
  table.add("Einsum", einsum);
  table.add("Det", det);
}

}  // namespace pelton::onnx
