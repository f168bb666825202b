// SPDX-License-Identifier: Apache-2.0
// Ops that pick by value, condition or length: rows and inference. Evaluation in select_eval.cc. Index
// tensors are i64 in every result.
#include <limits>

#include "ir/builder.h"
#include "ir/ops/common.h"
#include "ir/ops/exact_row.h"
#include "ir/ops/index_eval.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;
constexpr int64_t kFlatten = -1000;  // "axis" of unique that means the flattened tensor

void infer_one_hot(InferContext& c) {
  for (size_t i : {0, 1})
    c.require(supports_number(c.dtype(i)), ErrorCode::bad_type, "C1",
              cat("needs numbers as indices and depth, not ", name(c.dtype(i))));
  c.require(c.rank(1) == 0 || c.shape(1)[0] == Dim(1), kShape, "C2",
            cat("needs one depth, not ", cat(c.shape(1))));
  c.require(c.rank(2) == 1, kShape, "C3", cat("needs the off and on values as [2], not ", cat(c.shape(2))));
  c.same(c.shape(2)[0], 2, "C3");
  auto axis = c.axis(c.node.get_int("axis"), c.rank(0) + 1);
  Shape out = c.shape(0);
  auto depth = c.contents(1);
  const Tensor* fixed = c.constant(1);
  Dim size = depth && depth->size() == 1    ? (*depth)[0]
             : fixed && fixed->count() == 1 ? Dim(static_cast<int64_t>(fixed->get_double(0)))
                                            : c.fresh_size(0, static_cast<size_t>(axis), {});
  out.insert(out.begin() + axis, size);
  c.output(0, c.dtype(2), out);
}

void infer_non_zero(InferContext& c) {
  DType t = c.dtype(0);
  c.require(is_compute(t), ErrorCode::bad_type, "C1", cat("does not take ", name(t), " elements"));
  int64_t most = element_count(c.shape(0)).range(c.ranges()).max;
  c.output(0, DType::i64, {Dim(c.rank(0)), c.fresh_size(0, 1, {0, most})});
}

void infer_compress(InferContext& c) {
  c.require(c.dtype(1) == DType::boolean && c.rank(1) == 1, ErrorCode::bad_type, "C1",
            cat("needs a condition of type bool and rank 1, not ", c.type(1).str()));
  auto axis = static_cast<size_t>(c.axis(c.node.get_int("axis"), c.rank(0)));
  Shape out = c.shape(0);
  c.require(at_most(c.shape(1)[0], out[axis], c.ranges()) != Tri::no, kShape, "C2",
            cat("has ", c.shape(1)[0].str(), " conditions for axis ", axis, " of size ", out[axis].str()));
  if (const Tensor* condition = c.constant(1)) {
    int64_t kept = 0;
    for (int64_t v : to_ints(*condition)) kept += v != 0;
    out[axis] = kept;
  } else {
    out[axis] = c.fresh_size(0, axis, {0, out[axis].range(c.ranges()).max});
  }
  c.output(0, c.dtype(0), out);
}

void infer_unique(InferContext& c) {
  int64_t axis = c.node.get_int("axis");
  bool flat = axis == kFlatten;
  if (!flat) axis = c.axis(axis, c.rank(0));
  Shape out = flat ? Shape{element_count(c.shape(0))} : c.shape(0);
  auto a = static_cast<size_t>(flat ? 0 : axis);
  Dim all = out[a];
  Range range = all.range(c.ranges());
  out[a] = c.fresh_size(0, a, {range.min > 0 ? 1 : 0, range.max});
  c.output(0, c.dtype(0), out);
  c.output(1, DType::i64, {out[a]});
  c.output(2, DType::i64, {all});
  c.output(3, DType::i64, {out[a]});
}

void infer_reverse_sequence(InferContext& c) {
  c.require(is_int(c.dtype(1)) && c.rank(1) == 1, ErrorCode::bad_type, "C1",
            cat("needs integer lengths of rank 1, not ", c.type(1).str()));
  auto batch = c.axis(c.node.get_int("batch_axis"), c.rank(0)),
       time = c.axis(c.node.get_int("time_axis"), c.rank(0));
  c.require(batch != time, ErrorCode::usage, "C2", "needs two different axes");
  c.same(c.shape(1)[0], c.shape(0)[static_cast<size_t>(batch)], "C3");
  c.output(0, c.dtype(0), c.shape(0));
}

void infer_embedding_bag(InferContext& c) {
  c.require(supports_float(c.dtype(0)) && c.rank(0) == 2, ErrorCode::bad_type, "C1",
            cat("needs a float table of rank 2, not ", c.type(0).str()));
  for (size_t i : {1, 2})
    c.require(is_int(c.dtype(i)) && c.rank(i) == 1, ErrorCode::bad_type, "C2",
              cat("needs integer indices and offsets of rank 1, not ", c.type(i).str()));
  const std::string& mode = c.node.get_text("mode");
  c.require(mode == "sum" || mode == "mean" || mode == "max", ErrorCode::usage, "C3",
            cat("has no mode '", mode, "'"));
  if (c.has(3)) {
    c.require(mode == "sum" && c.dtype(3) == c.dtype(0) && c.rank(3) == 1, ErrorCode::bad_type, "C4",
              cat("takes weights of the table's type and rank 1 in mode sum, not ", c.type(3).str(),
                  " in mode ", mode));
    c.same(c.shape(3)[0], c.shape(1)[0], "C4");
  }
  c.output(0, c.dtype(0), {c.shape(2)[0], c.shape(0)[1]});
}

// Bag of each index by counting the offsets at or below its position; rows then fold into zeros by scatter.
std::vector<ValueId> decompose_embedding_bag(Builder& b, const Node& node) {
  ValueId table = node.inputs[0], indices = node.inputs[1], offsets = b.cast(node.inputs[2], DType::i64);
  std::string mode = node.get_text("mode");
  DType t = b.dtype(table);
  Dim count = b.shape(indices)[0], bags = b.shape(offsets)[0], width = b.shape(table)[1];
  ValueId position =
      b.op("iota", {}, {{"dims", Shape{count, 1}}, {"axis", int64_t{0}}, {"dtype", DType::i64}});
  ValueId started = b.cast(b.op("ge", {position, offsets}), DType::i64);
  ValueId bag = b.sub(b.reduce("reduce_sum", started, {1}, true), b.scalar(DType::i64, 1));
  ValueId rows = b.op("gather", {table, indices}, {{"axis", int64_t{0}}});
  if (node.inputs.size() > 3 && node.inputs[3]) rows = b.mul(rows, b.unsqueeze(node.inputs[3], {1}));
  auto filled = [&](double v, Shape dims) {
    return b.op("fill", {b.scalar(t, v)}, {{"dims", std::move(dims)}});
  };
  auto scatter = [&](ValueId into, ValueId updates, const char* reduction) {
    return b.op("scatter_nd", {into, bag, updates}, {{"reduction", std::string(reduction)}});
  };
  if (mode == "sum") return {scatter(filled(0, {bags, width}), rows, "add")};
  ValueId sizes = b.unsqueeze(scatter(filled(0, {bags}), filled(1, {count}), "add"), {1});
  if (mode == "mean")
    return {b.div(scatter(filled(0, {bags, width}), rows, "add"), b.op("max", {sizes, b.scalar(t, 1)}))};
  ValueId best = scatter(filled(-std::numeric_limits<double>::infinity(), {bags, width}), rows, "max");
  return {b.select(b.op("gt", {sizes, b.scalar(t, 0)}), best, b.scalar(t, 0))};
}

void infer_tensor_scatter(InferContext& c) {
  c.require(c.dtype(0) == c.dtype(1), ErrorCode::bad_type, "C1",
            cat("needs an update of the past's type ", name(c.dtype(0)), ", not ", name(c.dtype(1))));
  const Shape &past = c.shape(0), &update = c.shape(1);
  c.require(past.size() == update.size() && past.size() >= 2, kShape, "C2",
            cat("needs past and update of one rank, 2 or more, not ", cat(past), " and ", cat(update)));
  auto axis = static_cast<size_t>(c.axis(c.node.get_int("axis"), c.rank(0)));
  c.require(axis > 0, ErrorCode::usage, "C3", "cannot write along axis 0, the batch");
  for (size_t d = 0; d < past.size(); ++d)
    if (d != axis) c.same(past[d], update[d], "C2");
  c.require(at_most(update[axis], past[axis], c.ranges()) != Tri::no, kShape, "C2",
            cat("writes ", update[axis].str(), " entries into ", past[axis].str(), " along axis ", axis));
  if (c.has(2)) {
    c.require(is_int(c.dtype(2)) && c.rank(2) == 1, ErrorCode::bad_type, "C4",
              cat("needs integer write indices of rank 1, not ", c.type(2).str()));
    c.same(c.shape(2)[0], past[0], "C4");
  }
  c.output(0, c.dtype(0), past);
}

double embedding_flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>&) {
  return static_cast<double>(element_count(in[1])) * static_cast<double>(in[0][1]);
}

}  // namespace

void add_select(OpRows& rows) {
  rows.push_back(exact_row(
      Family::indexing, "one_hot", 3, 3, {{"axis", AttrKind::integer, Attr(int64_t{-1})}}, infer_one_hot,
      eval_one_hot, {"C1: indices and depth are numbers", "C2: one depth", "C3: values are [off, on]"}));
  rows.push_back(exact_row(Family::indexing, "non_zero", 1, 1, {}, infer_non_zero, eval_non_zero,
                           {"C1: the element type is a number or bool"}));
  rows.push_back(exact_row(Family::indexing, "compress", 2, 2, {{"axis", AttrKind::integer, {}}},
                           infer_compress, eval_compress,
                           {"C1: the condition is bool of rank 1", "C2: no more conditions than entries"}));
  rows.push_back(
      exact_row(Family::indexing, "unique", 1, 1,
                {{"axis", AttrKind::integer, Attr(kFlatten)}, {"sorted", AttrKind::boolean, Attr(true)}},
                infer_unique, eval_unique, {}));
  rows.back().max_outputs = 4;
  rows.push_back(exact_row(Family::indexing, "reverse_sequence", 2, 2,
                           {{"batch_axis", AttrKind::integer, {}}, {"time_axis", AttrKind::integer, {}}},
                           infer_reverse_sequence, eval_reverse_sequence,
                           {"C1: lengths are integers of rank 1", "C2: the axes differ",
                            "C3: one length an entry of the batch axis"}));
  rows.push_back(
      exact_row(Family::indexing, "embedding_bag", 3, 4, {{"mode", AttrKind::text, Attr(std::string("sum"))}},
                infer_embedding_bag, eval_embedding_bag,
                {"C1: the table is float of rank 2", "C2: indices and offsets are integers of rank 1",
                 "C3: the mode exists", "C4: weights go with mode sum, one an index"}));
  rows.back().precision = Precision::accumulates;
  rows.back().decompose = decompose_embedding_bag;
  rows.back().flops = embedding_flops;
  rows.push_back(exact_row(
      Family::indexing, "tensor_scatter", 2, 3,
      {{"axis", AttrKind::integer, Attr(int64_t{-2})}, {"circular", AttrKind::boolean, Attr(false)}},
      infer_tensor_scatter, eval_tensor_scatter,
      {"C1: past and update have one type",
       "C2: past and update agree but along the axis, where the update is not longer",
       "C3: the axis is not the batch", "C4: one write index a batch entry"}));
  rows.back().alias = AliasRule::in_place;
}

}  // namespace pelton::ir
