// SPDX-License-Identifier: Apache-2.0
// Gather and scatter: rows and inference. Evaluation in index_eval.cc. Negative indices count from the end;
// an index outside is a bad_shape error of the run. What picks by value or condition is in select.cc.
#include "ir/builder.h"
#include "ir/ops/common.h"
#include "ir/ops/exact_row.h"
#include "ir/ops/index_eval.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;

void require_indices(const InferContext& c, size_t i) {
  DType t = c.dtype(i);
  c.require(is_int(t) && is_compute(t), ErrorCode::bad_type, "C1",
            cat("needs integer indices, not ", name(t)));
}

void infer_gather(InferContext& c) {
  require_indices(c, 1);
  auto axis = static_cast<size_t>(c.axis(c.node.get_int("axis"), c.rank(0)));
  const Shape &x = c.shape(0), &i = c.shape(1);
  Shape out(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(axis));
  out.insert(out.end(), i.begin(), i.end());
  out.insert(out.end(), x.begin() + static_cast<std::ptrdiff_t>(axis) + 1, x.end());
  c.output(0, c.dtype(0), out);
  auto values = c.contents(0);
  const Tensor* picks = c.constant(1);
  if (!values || x.size() != 1 || !picks || picks->rank() > 1) return;
  Contents picked;
  auto size = static_cast<int64_t>(values->size());
  for (int64_t at : to_ints(*picks)) {
    if (at < -size || at >= size) return;
    picked.push_back((*values)[static_cast<size_t>(at < 0 ? at + size : at)]);
  }
  c.output_contents(0, picked);
}

void same_but_axis(InferContext& c, size_t i, int64_t axis) {
  const Shape &x = c.shape(0), &s = c.shape(i);
  c.require(x.size() == s.size(), kShape, "C2",
            cat("needs data and indices of one rank, not ", cat(x), " and ", cat(s)));
  for (size_t d = 0; d < x.size(); ++d)
    c.require(static_cast<int64_t>(d) == axis || at_most(s[d], x[d], c.ranges()) != Tri::no, kShape, "C2",
              cat("has indices ", cat(s), " beyond data ", cat(x), " along axis ", d));
}

void infer_gather_elements(InferContext& c) {
  require_indices(c, 1);
  same_but_axis(c, 1, c.axis(c.node.get_int("axis"), c.rank(0)));
  c.output(0, c.dtype(0), c.shape(1));
}

// Length of the index tuples, the last dim of the indices.
size_t tuple_size(const InferContext& c, int64_t rank) {
  const Shape& i = c.shape(1);
  if (i.empty() || !i.back().is_const())
    fail(kShape, cat(c.node.op->name, " needs indices with a fixed last size, not ", cat(i)),
         cat(c.graph.describe(c.id), ", C2"), "give the inputs of the model fixed sizes (--shape)");
  c.require(i.back().value() >= 0 && i.back().value() <= rank, kShape, "C2",
            cat("has index tuples of ", i.back().str(), " for ", rank, " axes"));
  return static_cast<size_t>(i.back().value());
}

void infer_gather_nd(InferContext& c) {
  require_indices(c, 1);
  const Shape &x = c.shape(0), &i = c.shape(1);
  int64_t batch = c.node.get_int("batch_dims");
  c.require(batch >= 0 && batch <= c.rank(0) && batch < c.rank(1), ErrorCode::usage, "C3",
            cat("has batch_dims ", batch, " for data ", cat(x), " and indices ", cat(i)));
  size_t b = static_cast<size_t>(batch), k = tuple_size(c, c.rank(0) - batch);
  Shape out(i.begin(), i.end() - 1);
  for (size_t d = 0; d < b; ++d) out[d] = c.same(x[d], i[d], "C3");
  out.insert(out.end(), x.begin() + static_cast<std::ptrdiff_t>(b + k), x.end());
  c.output(0, c.dtype(0), out);
}

void require_reduction(const InferContext& c) {
  const std::string& r = c.node.get_text("reduction");
  c.require(r == "none" || r == "add" || r == "mul" || r == "max" || r == "min", ErrorCode::usage, "C4",
            cat("has no reduction '", r, "'"));
  c.require(c.dtype(0) == c.dtype(2), ErrorCode::bad_type, "C3",
            cat("needs updates of the data's type ", name(c.dtype(0)), ", not ", name(c.dtype(2))));
  c.require(r == "none" || supports_number(c.dtype(0)), ErrorCode::bad_type, "C4",
            cat("cannot ", r, " ", name(c.dtype(0)), " elements"));
}

void infer_scatter_elements(InferContext& c) {
  require_indices(c, 1);
  require_reduction(c);
  same_but_axis(c, 1, c.axis(c.node.get_int("axis"), c.rank(0)));
  c.require(c.rank(1) == c.rank(2), kShape, "C2",
            cat("needs one update an index, but shapes are ", cat(c.shape(2)), " and ", cat(c.shape(1))));
  for (size_t d = 0; d < c.shape(1).size(); ++d) c.same(c.shape(1)[d], c.shape(2)[d], "C2");
  c.output(0, c.dtype(0), c.shape(0));
}

void infer_scatter_nd(InferContext& c) {
  require_indices(c, 1);
  require_reduction(c);
  const Shape &x = c.shape(0), &i = c.shape(1), &u = c.shape(2);
  size_t k = tuple_size(c, c.rank(0));
  Shape wanted(i.begin(), i.end() - 1);
  wanted.insert(wanted.end(), x.begin() + static_cast<std::ptrdiff_t>(k), x.end());
  c.require(u.size() == wanted.size(), kShape, "C2",
            cat("needs updates of shape ", cat(wanted), ", not ", cat(u)));
  for (size_t d = 0; d < u.size(); ++d) c.same(u[d], wanted[d], "C2");
  c.output(0, c.dtype(0), x);
}

}  // namespace

void add_index(OpRows& rows) {
  AttrDef axis{"axis", AttrKind::integer, {}};
  AttrDef reduction{"reduction", AttrKind::text, Attr(std::string("none"))};
  rows.push_back(exact_row(Family::indexing, "gather", 2, 2, {axis}, infer_gather, eval_gather,
                           {"C1: the indices are integers"}));
  rows.back().sharding = "rows";
  rows.back().batching = "batched_indices";
  rows.push_back(exact_row(Family::indexing, "gather_elements", 2, 2, {axis}, infer_gather_elements,
                           eval_gather_elements,
                           {"C1: the indices are integers",
                            "C2: the indices have the data's rank and no larger sizes but along the axis"}));
  rows.back().sharding = "other_axes";
  rows.back().batching = "shift_axes";
  rows.push_back(
      exact_row(Family::indexing, "gather_nd", 2, 2, {{"batch_dims", AttrKind::integer, Attr(int64_t{0})}},
                infer_gather_nd, eval_gather_nd,
                {"C1: the indices are integers",
                 "C2: the last size of the indices is fixed and at most the number of indexed axes",
                 "C3: batch_dims fit both operands and agree"}));
  rows.back().batching = "batch_dims";
  rows.push_back(exact_row(
      Family::indexing, "scatter_elements", 3, 3, {axis, reduction}, infer_scatter_elements,
      eval_scatter_elements,
      {"C1: the indices are integers", "C2: the indices have the shape of the updates and the data's rank",
       "C3: data and updates have one type", "C4: the reduction exists and takes the type"}));
  rows.back().precision = Precision::accumulates;
  rows.back().alias = AliasRule::in_place;
  rows.back().sharding = "other_axes";
  rows.back().batching = "shift_axes";
  rows.push_back(
      exact_row(Family::indexing, "scatter_nd", 3, 3, {reduction}, infer_scatter_nd, eval_scatter_nd,
                {"C1: the indices are integers",
                 "C2: the last size of the indices is fixed; updates have one slice an index tuple",
                 "C3: data and updates have one type", "C4: the reduction exists and takes the type"}));
  rows.back().precision = Precision::accumulates;
  rows.back().alias = AliasRule::in_place;
}

}  // namespace pelton::ir
