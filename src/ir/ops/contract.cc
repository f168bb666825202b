// SPDX-License-Identifier: Apache-2.0
// matmul: row and inference. Letters: B broadcast batch dims, M rows, N columns, K summed size.
// Evaluation in contract_eval.cc; einsum in einsum.cc.
#include "ir/builder.h"
#include "ir/ops/common.h"
#include "ir/ops/contract_eval.h"

namespace pelton::ir {
namespace {

bool is_byte(DType t) {
  return t == DType::i8 || t == DType::u8;
}

// One operand as [B..., rows, columns] after its transposition; rank 1 is a row (a) or a column (b).
Shape as_matrix(const InferContext& c, size_t i, bool transpose) {
  Shape s = c.shape(i);
  c.require(!s.empty(), ErrorCode::bad_shape, "C2", cat("does not take a scalar as operand ", i));
  if (s.size() == 1) {
    c.require(!transpose, ErrorCode::usage, "C2", cat("cannot transpose operand ", i, " of rank 1"));
    s.insert(i == 0 ? s.begin() : s.end(), Dim(1));
  } else if (transpose) {
    std::swap(s[s.size() - 1], s[s.size() - 2]);
  }
  return s;
}

void check_zero(InferContext& c, size_t i, const Shape& operand, bool rows) {
  if (!c.has(i)) return;
  c.require(is_byte(c.dtype(0)) && c.dtype(i) == c.dtype(i - 2), ErrorCode::bad_type, "C4",
            cat("needs a zero point of the operand's 8-bit type, not ", name(c.dtype(i))));
  const Shape& z = c.shape(i);
  if (z.empty() || (z.size() == 1 && z[0] == Dim(1))) return;
  if (z.size() == 1) {
    c.same(z[0], operand[operand.size() - (rows ? 2 : 1)], "C4");
    return;
  }
  c.require(z.size() == operand.size() && z[z.size() - (rows ? 1 : 2)] == Dim(1), ErrorCode::bad_shape, "C4",
            cat("needs zero points one a ", rows ? "row" : "column", ", not of shape ", cat(z)));
  c.broadcast(operand, z, "C4");
}

void infer_matmul(InferContext& c) {
  DType a_type = c.dtype(0), b_type = c.dtype(1);
  bool bytes = is_byte(a_type) && is_byte(b_type);
  c.require(bytes || (supports_number(a_type) && a_type == b_type), ErrorCode::bad_type, "C1",
            cat("needs operands of one number type or of 8-bit integers, not ", name(a_type), " and ",
                name(b_type)));
  Shape a = as_matrix(c, 0, c.node.get_bool("transpose_a")),
        b = as_matrix(c, 1, c.node.get_bool("transpose_b"));
  const Dim &left = a.back(), &right = b[b.size() - 2];
  if (equal(left, right, c.ranges()) == Tri::no)
    c.refuse(ErrorCode::bad_shape, "C3",
             cat("sums over ", left.str(), " on the left but ", right.str(), " on the right: shapes ",
                 cat(c.shape(0)), " and ", cat(c.shape(1))));
  c.same(left, right, "C3");
  check_zero(c, 2, a, true);
  check_zero(c, 3, b, false);
  Shape out = c.broadcast(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2), "C5");
  if (c.rank(0) > 1) out.push_back(a[a.size() - 2]);
  if (c.rank(1) > 1) out.push_back(b.back());
  c.output(0, bytes ? DType::i32 : a_type, out);
}

double matmul_flops(const Graph&, const Node& node, const std::vector<Dims>& in,
                    const std::vector<Dims>& out) {
  bool flip = in[0].size() > 1 && node.get_bool("transpose_a");
  int64_t k = flip ? in[0][in[0].size() - 2] : in[0].back();
  return 2.0 * static_cast<double>(element_count(out[0])) * static_cast<double>(k);
}

}  // namespace

void add_contract(OpRows& rows) {
  OpDef row;
  row.name = "matmul";
  row.family = Family::contraction;
  row.min_inputs = 2;
  row.max_inputs = 4;
  row.attrs = {{"transpose_a", AttrKind::boolean, Attr(false)},
               {"transpose_b", AttrKind::boolean, Attr(false)}};
  row.constraints = {
      "C1: both operands have one number type, or each is i8 or u8",
      "C2: operands have rank 1 or more, and 2 or more to be transposed", "C3: the summed sizes are equal",
      "C4: zero points have the 8-bit type of their operand: one, one a row (a) or a column (b)",
      "C5: batch dims broadcast"};
  row.infer = infer_matmul;
  row.eval = eval_matmul;
  row.flops = matmul_flops;
  row.precision = Precision::accumulates;
  row.sharding = "*mk,*kn->*mn";
  row.batching = "broadcast_left";
  rows.push_back(std::move(row));
}

}  // namespace pelton::ir
