// SPDX-License-Identifier: Apache-2.0
// Pooling over windows of the spatial axes of x[N,C,S...]: rows and inference. Evaluation in pool_eval.cc.
#include "ir/builder.h"
#include "ir/ops/pool_eval.h"
#include "ir/ops/window.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;

Shape pooled(InferContext& c) {
  const Shape& x = c.shape(0);
  c.require(x.size() >= 3, kShape, "C2", cat("needs rank 3 or more, not ", cat(x)));
  Shape spatial = infer_window(c, Shape(x.begin() + 2, x.end()), to_shape(c.node.get_ints("kernel")),
                               c.node.get_bool("ceil"));
  Shape out{x[0], x[1]};
  out.insert(out.end(), spatial.begin(), spatial.end());
  return out;
}

void infer_max_pool(InferContext& c) {
  DType t = c.dtype(0);
  c.require(supports_number(t), ErrorCode::bad_type, "C1", cat("does not take ", name(t), " elements"));
  Shape out = pooled(c);
  c.output(0, t, out);
  c.output(1, DType::i64, out);
}

void infer_float_pool(InferContext& c) {
  DType t = c.dtype(0);
  c.require(supports_float(t), ErrorCode::bad_type, "C1", cat("does not take ", name(t), " elements"));
  if (c.node.is("lp_pool"))
    c.require(c.node.get_int("p") >= 1, ErrorCode::usage, "C3",
              cat("needs p of 1 or more, not ", c.node.get_int("p")));
  c.output(0, t, pooled(c));
}

void infer_max_unpool(InferContext& c) {
  c.require(supports_number(c.dtype(0)), ErrorCode::bad_type, "C1",
            cat("does not take ", name(c.dtype(0)), " elements"));
  c.require(c.dtype(1) == DType::i64, ErrorCode::bad_type, "C1",
            cat("needs i64 indices, not ", name(c.dtype(1))));
  const Shape& x = c.shape(0);
  c.require(x.size() >= 3, kShape, "C2", cat("needs rank 3 or more, not ", cat(x)));
  c.require(c.rank(1) == c.rank(0), kShape, "C2",
            cat("needs one index an element, but shapes are ", cat(x), " and ", cat(c.shape(1))));
  for (size_t d = 0; d < x.size(); ++d) c.same(x[d], c.shape(1)[d], "C2");
  size_t rank = x.size() - 2;
  Window w = window_of(c.node, rank);
  const Ints& kernel = c.node.get_ints("kernel");
  c.require(
      kernel.size() == rank && w.strides.size() == rank && w.low.size() == rank && w.high.size() == rank,
      ErrorCode::usage, "W1", cat("needs kernel sizes, strides and pads for ", rank, " spatial axes"));
  Shape out{x[0], x[1]};
  for (size_t i = 0; i < rank; ++i)
    out.push_back((x[i + 2] - 1) * w.strides[i] + kernel[i] - w.low[i] - w.high[i]);
  if (c.has(2)) {
    c.require(c.dtype(2) == DType::i64 && c.rank(2) == 1, ErrorCode::bad_type, "C3",
              cat("needs the shape as i64[rank], not ", c.type(2).str()));
    c.same(c.shape(2)[0], static_cast<int64_t>(x.size()), "C3");
    auto sizes = c.contents(2);
    for (size_t d = 0; d < x.size(); ++d) out[d] = sizes ? (*sizes)[d] : c.fresh_size(0, d, {});
  }
  c.output(0, c.dtype(0), out);
}

double pool_flops(const Graph&, const Node& node, const std::vector<Dims>&, const std::vector<Dims>& out) {
  return static_cast<double>(element_count(out[0])) *
         static_cast<double>(element_count(node.get_ints("kernel")));
}

OpDef pool_row(std::string_view name, const std::vector<AttrDef>& more, void (*infer)(InferContext&),
               void (*eval)(EvalContext&)) {
  OpDef row;
  row.name = name;
  row.family = Family::pooling;
  row.attrs = window_attrs();
  static const std::vector<AttrDef> shared = {{"kernel", AttrKind::ints, {}},
                                              {"ceil", AttrKind::boolean, Attr(false)}};
  for (const AttrDef& a : shared) row.attrs.push_back(a);
  for (const AttrDef& a : more) row.attrs.push_back(a);
  row.constraints = {"C1: the element type is one the op accepts", "C2: x has rank 3 or more", kW1, kW2, kW3};
  row.infer = infer;
  row.eval = eval;
  row.flops = pool_flops;
  row.layout = LayoutFreedom::channels;
  row.sharding = "nc*->nc*";
  row.batching = "merge_batch";
  return row;
}

}  // namespace

void add_pool(OpRows& rows) {
  rows.push_back(
      pool_row("max_pool", {{"row_major", AttrKind::boolean, Attr(true)}}, infer_max_pool, eval_max_pool));
  rows.back().max_outputs = 2;
  rows.back().precision = Precision::exact;
  rows.push_back(pool_row("avg_pool", {{"count_padding", AttrKind::boolean, Attr(false)}}, infer_float_pool,
                          eval_avg_pool));
  rows.back().precision = Precision::accumulates;
  rows.push_back(
      pool_row("lp_pool", {{"p", AttrKind::integer, Attr(int64_t{2})}}, infer_float_pool, eval_lp_pool));
  rows.back().precision = Precision::accumulates;
  rows.back().constraints.insert(rows.back().constraints.begin() + 2, "C3: p is at least 1");

  OpDef unpool;
  unpool.name = "max_unpool";
  unpool.family = Family::pooling;
  unpool.min_inputs = 2;
  unpool.max_inputs = 3;
  unpool.attrs = {{"kernel", AttrKind::ints, {}},
                  {"strides", AttrKind::ints, Attr(Ints{})},
                  {"low", AttrKind::dims, Attr(Shape{})},
                  {"high", AttrKind::dims, Attr(Shape{})}};
  unpool.constraints = {"C1: x is numbers, the indices are i64",
                        "C2: one index an element of x, of rank 3 or more", "C3: the shape is i64[rank]",
                        kW1};
  unpool.infer = infer_max_unpool;
  unpool.eval = eval_max_unpool;
  unpool.precision = Precision::exact;
  rows.push_back(std::move(unpool));
}

}  // namespace pelton::ir
