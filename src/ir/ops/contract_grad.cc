// SPDX-License-Identifier: Apache-2.0
// Gradients of matmul: two matmuls that read the operands as they lie. Letters as in contract.cc.
#include "ir/ops/gradients.h"

namespace pelton::ir {
namespace {

ValueId product(Builder& b, ValueId x, ValueId y, bool transpose_x, bool transpose_y) {
  return b.op("matmul", {x, y}, {{"transpose_a", transpose_x}, {"transpose_b", transpose_y}});
}

// x[..., M, K] as [rows, K].
ValueId flat_rows(Builder& b, ValueId x) {
  const Shape& shape = b.shape(x);
  Dim rows = 1;
  for (size_t d = 0; d + 1 < shape.size(); ++d) rows = rows * shape[d];
  return b.reshape(x, {rows, shape.back()});
}

void matmul(GradientContext& c) {
  Builder& b = c.b;
  ValueId left = c.in(0), right = c.in(1), g = c.grad();
  bool ta = c.node.get_bool("transpose_a"), tb = c.node.get_bool("transpose_b");
  // Rank 1 is a row on the left, a column on the right.
  const Shape a_shape = b.shape(left), b_shape = b.shape(right);
  if (b_shape.size() == 1) {
    right = b.unsqueeze(right, {1});
    g = b.unsqueeze(g, {-1});
  }
  if (a_shape.size() == 1) {
    left = b.unsqueeze(left, {0});
    g = b.unsqueeze(g, {-2});
  }
  if (c.wants(0)) {
    ValueId d = ta ? product(b, right, g, tb, true) : product(b, g, right, false, !tb);
    c.set(0, b.reshape(sum_to_shape(b, d, b.shape(left)), a_shape));
  }
  if (c.wants(1)) {
    // One matrix for the whole batch: the batch joins the rows that are summed over.
    if (b.rank(right) == 2 && b.rank(left) > 2 && !ta) {
      left = flat_rows(b, left);
      g = flat_rows(b, g);
    }
    ValueId d = tb ? product(b, g, left, true, ta) : product(b, left, g, !ta, false);
    c.set(1, b.reshape(sum_to_shape(b, d, b.shape(right)), b_shape));
  }
}

}  // namespace

void add_contract_gradients(OpRows& rows) {
  set_gradients(rows, {{"matmul", matmul}});
}

}  // namespace pelton::ir
