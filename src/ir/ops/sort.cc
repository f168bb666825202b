// SPDX-License-Identifier: Apache-2.0
// Sorting along an axis: rows and inference. Evaluation in sort_eval.cc.
#include <cmath>

#include "ir/builder.h"
#include "ir/ops/common.h"
#include "ir/ops/sort_eval.h"

namespace pelton::ir {
namespace {

void infer_topk(InferContext& c) {
  DType t = c.dtype(0);
  c.require(supports_number(t), ErrorCode::bad_type, "C1", cat("does not take ", name(t), " elements"));
  c.require(is_int(c.dtype(1)) && c.rank(1) <= 1, ErrorCode::bad_type, "C2",
            cat("needs k as one integer, not ", c.type(1).str()));
  auto axis = static_cast<size_t>(c.axis(c.node.get_int("axis"), c.rank(0)));
  Shape out = c.shape(0);
  auto k = c.contents(1);
  if (k) {
    c.require(k->size() == 1, ErrorCode::bad_shape, "C2", cat("needs one k, not ", k->size()));
    c.require((*k)[0].range(c.ranges()).max >= 0 && at_most((*k)[0], out[axis], c.ranges()) != Tri::no,
              ErrorCode::bad_shape, "C3",
              cat("cannot pick ", (*k)[0].str(), " of ", out[axis].str(), " elements along axis ", axis));
    out[axis] = (*k)[0];
  } else {
    out[axis] = c.fresh_size(0, axis, {0, out[axis].range(c.ranges()).max});
  }
  c.output(0, t, out);
  c.output(1, DType::i64, out);
}

void infer_sort(InferContext& c) {
  DType t = c.dtype(0);
  c.require(supports_number(t), ErrorCode::bad_type, "C1", cat("does not take ", name(t), " elements"));
  c.axis(c.node.get_int("axis"), c.rank(0));
  c.output(0, t, c.shape(0));
  c.output(1, DType::i64, c.shape(0));
}

double sort_flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>&) {
  auto n = static_cast<double>(element_count(in[0]));
  return n * std::log2(n + 1);
}

}  // namespace

void add_sort(OpRows& rows) {
  OpDef row;
  row.name = "topk";
  row.family = Family::sorting;
  row.min_inputs = row.max_inputs = 2;
  row.max_outputs = 2;
  row.attrs = {{"axis", AttrKind::integer, Attr(int64_t{-1})},
               {"largest", AttrKind::boolean, Attr(true)},
               {"sorted", AttrKind::boolean, Attr(true)}};
  row.constraints = {"C1: the element type is a number", "C2: k is one integer",
                     "C3: k is at most the size of the axis"};
  row.infer = infer_topk;
  row.eval = eval_topk;
  row.flops = sort_flops;
  row.precision = Precision::exact;
  row.sharding = "other_axes";
  row.batching = "shift_axes";
  rows.push_back(row);
  row.name = "sort";
  row.min_inputs = row.max_inputs = 1;
  row.attrs = {{"axis", AttrKind::integer, Attr(int64_t{-1})},
               {"descending", AttrKind::boolean, Attr(false)}};
  row.constraints = {"C1: the element type is a number"};
  row.infer = infer_sort;
  row.eval = eval_sort;
  rows.push_back(std::move(row));
}

}  // namespace pelton::ir
