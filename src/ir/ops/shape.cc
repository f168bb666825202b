// SPDX-License-Identifier: Apache-2.0
// Movement ops whose sizes are attributes: rows and inference. Evaluation in shape_eval.cc; the
// data-dependent forms in dynamic_shape.cc.
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/exact_row.h"
#include "ir/ops/shape_eval.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;

void infer_constant(InferContext& c) {
  const Tensor& t = c.node.get_tensor("value");
  c.output(0, t.dtype(), to_shape(t.dims()));
}

void infer_reshape(InferContext& c) {
  const Shape& to = c.node.get_dims("dims");
  c.same(element_count(c.shape(0)), element_count(to), "C1");
  c.output(0, c.dtype(0), to);
  if (auto contents = c.contents(0); contents && to.size() <= 1) c.output_contents(0, *contents);
}

void infer_transpose(InferContext& c) {
  const Ints& perm = c.node.get_ints("perm");
  Ints sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i)
    c.require(sorted[i] == static_cast<int64_t>(i), kShape, "C1",
              cat("perm ", perm, " is not a permutation"));
  c.require(static_cast<int64_t>(perm.size()) == c.rank(0), kShape, "C1",
            cat("perm ", perm, " does not fit rank ", c.rank(0)));
  Shape out;
  for (int64_t p : perm) out.push_back(c.shape(0)[static_cast<size_t>(p)]);
  c.output(0, c.dtype(0), out);
}

void infer_broadcast_to(InferContext& c) {
  const Shape &from = c.shape(0), &to = c.node.get_dims("dims");
  c.require(from.size() <= to.size(), kShape, "C1", cat("cannot broadcast ", cat(from), " to ", cat(to)));
  for (size_t i = 0; i < from.size(); ++i) {
    const Dim &d = from[i], &t = to[to.size() - from.size() + i];
    if (d == Dim(1) || d == t) continue;
    if (d.is_const() && d.value() != 1)
      c.same(d, t, "C1");
    else if (equal(d, t, c.ranges()) == Tri::no && equal(d, 1, c.ranges()) == Tri::no)
      c.refuse(kShape, "C1", cat("cannot broadcast ", cat(from), " to ", cat(to)));
  }
  c.output(0, c.dtype(0), to);
  if (auto contents = c.contents(0);
      contents && contents->size() == 1 && to.size() == 1 && to[0].is_const() && to[0].value() <= 64)
    c.output_contents(0, Contents(static_cast<size_t>(std::max<int64_t>(to[0].value(), 0)), (*contents)[0]));
}

void infer_slice(InferContext& c) {
  Ints axes = c.node.get_ints("axes");
  const Shape &starts = c.node.get_dims("starts"), &sizes = c.node.get_dims("sizes");
  const Ints& steps = c.node.get_ints("steps");
  c.require(axes.size() == starts.size() && axes.size() == sizes.size() && axes.size() == steps.size(),
            ErrorCode::usage, "C1", cat("needs one start, size and step for each of the axes ", axes));
  Shape out = c.shape(0);
  for (size_t i = 0; i < axes.size(); ++i) {
    auto axis = static_cast<size_t>(c.axis(axes[i], c.rank(0)));
    c.require(steps[i] != 0, ErrorCode::usage, "C2", "has step 0");
    Dim last = starts[i] + (sizes[i] - 1) * steps[i];
    bool empty = sizes[i] == Dim(0);
    if (!empty && (at_most(out[axis], last, c.ranges()) == Tri::yes || last.range(c.ranges()).max < 0))
      c.refuse(kShape, "C3",
               cat("reads index ", last.str(), " of axis ", axis, " with size ", out[axis].str()));
    out[axis] = sizes[i];
  }
  c.output(0, c.dtype(0), out);
  auto contents = c.contents(0);
  if (!contents || c.rank(0) != 1 || axes.size() != 1 || !starts[0].is_const() || !sizes[0].is_const())
    return;
  Contents picked;
  for (int64_t k = 0; k < sizes[0].value(); ++k) {
    int64_t at = starts[0].value() + k * steps[0];
    if (at < 0 || at >= static_cast<int64_t>(contents->size())) return;
    picked.push_back((*contents)[static_cast<size_t>(at)]);
  }
  c.output_contents(0, picked);
}

void infer_concat(InferContext& c) {
  Shape out = c.shape(0);
  int64_t axis = c.axis(c.node.get_int("axis"), c.rank(0));
  for (size_t i = 1; i < c.input_count(); ++i) {
    c.require(c.dtype(i) == c.dtype(0), ErrorCode::bad_type, "C1",
              cat("joins ", name(c.dtype(0)), " with ", name(c.dtype(i))));
    c.require(c.rank(i) == c.rank(0), kShape, "C2",
              cat("joins ", cat(c.shape(0)), " with ", cat(c.shape(i))));
    for (size_t d = 0; d < out.size(); ++d) {
      if (static_cast<int64_t>(d) == axis)
        out[d] = out[d] + c.shape(i)[d];
      else
        out[d] = c.same(out[d], c.shape(i)[d], "C2");
    }
  }
  c.output(0, c.dtype(0), out);
  if (out.size() != 1) return;
  Contents joined;
  for (size_t i = 0; i < c.input_count(); ++i) {
    auto part = c.contents(i);
    if (!part) return;
    joined.insert(joined.end(), part->begin(), part->end());
  }
  c.output_contents(0, joined);
}

void infer_pad(InferContext& c) {
  const Shape &low = c.node.get_dims("low"), &high = c.node.get_dims("high");
  const std::string& mode = c.node.get_text("mode");
  c.require(mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap", ErrorCode::usage,
            "C1", cat("has no mode '", mode, "'"));
  auto rank = static_cast<size_t>(c.rank(0));
  c.require(low.size() == rank && high.size() == rank, kShape, "C2",
            cat("needs ", rank, " low and high pads, not ", low.size(), " and ", high.size()));
  if (c.has(1))
    c.require(c.dtype(1) == c.dtype(0), ErrorCode::bad_type, "C3",
              cat("pads ", name(c.dtype(0)), " with a value of type ", name(c.dtype(1))));
  Shape out = c.shape(0);
  for (size_t d = 0; d < rank; ++d) {
    out[d] = out[d] + low[d] + high[d];
    c.require(out[d].range(c.ranges()).max >= 0, kShape, "C2",
              cat("crops axis ", d, " to size ", out[d].str()));
  }
  c.output(0, c.dtype(0), out);
}

void infer_tile(InferContext& c) {
  const Shape& repeats = c.node.get_dims("repeats");
  c.require(static_cast<int64_t>(repeats.size()) == c.rank(0), kShape, "C1",
            cat("needs ", c.rank(0), " repeats, not ", repeats.size()));
  Shape out = c.shape(0);
  for (size_t d = 0; d < out.size(); ++d) out[d] = out[d] * repeats[d];
  c.output(0, c.dtype(0), out);
}

void infer_reverse(InferContext& c) {
  c.axes(c.node.get_ints("axes"), c.rank(0));
  c.output(0, c.dtype(0), c.shape(0));
}

void infer_iota(InferContext& c) {
  const Shape& dims = c.node.get_dims("dims");
  c.axis(c.node.get_int("axis"), static_cast<int64_t>(dims.size()));
  DType t = c.node.get_dtype("dtype");
  c.require(supports_number(t), ErrorCode::bad_type, "C1", cat("does not yield ", name(t)));
  c.output(0, t, dims);
  if (is_int(t) && dims.size() == 1 && dims[0].is_const() && dims[0].value() <= 64) {
    Contents counting;
    for (int64_t i = 0; i < dims[0].value(); ++i) counting.emplace_back(i);
    c.output_contents(0, counting);
  }
}

void infer_fill(InferContext& c) {
  Dim count = element_count(c.shape(0));
  c.require(equal(count, 1, c.ranges()) != Tri::no, kShape, "C1",
            cat("needs one value, not ", cat(c.shape(0))));
  c.same(count, 1, "C1");
  const Shape& dims = c.node.get_dims("dims");
  c.output(0, c.dtype(0), dims);
  auto contents = c.contents(0);
  if (contents && contents->size() == 1 && dims.size() <= 1 &&
      (dims.empty() || (dims[0].is_const() && dims[0].value() <= 64)))
    c.output_contents(0,
                      Contents(dims.empty() ? 1 : static_cast<size_t>(std::max<int64_t>(0, dims[0].value())),
                               (*contents)[0]));
}

void infer_shape_of(InferContext& c) {
  c.output(0, DType::i64, {Dim(c.rank(0))});
  c.output_contents(0, c.shape(0));
}
void infer_contents(InferContext& c) {
  const Shape& dims = c.node.get_dims("dims");
  c.output(0, DType::i64, {Dim(static_cast<int64_t>(dims.size()))});
  c.output_contents(0, dims);
}

void infer_trilu(InferContext& c) {
  c.require(c.rank(0) >= 2, kShape, "C1", cat("needs rank 2 or more, not ", cat(c.shape(0))));
  if (c.has(1)) c.require(is_int(c.dtype(1)), ErrorCode::bad_type, "C2", "needs an integer diagonal");
  c.output(0, c.dtype(0), c.shape(0));
}

}  // namespace

void add_shape(OpRows& rows) {
  rows.push_back(exact_row(Family::shape, "constant", 0, 0,
                           {{"value", AttrKind::tensor, {}},
                            {"same_names", AttrKind::strings, Attr(Strings{})},
                            {"transposed_names", AttrKind::strings, Attr(Strings{})}},
                           infer_constant, eval_constant));
  rows.push_back(exact_row(Family::shape, "reshape", 1, 1, {{"dims", AttrKind::dims, {}}}, infer_reshape,
                           eval_reshape, {"C1: the number of elements stays"}));
  rows.back().alias = AliasRule::view;
  rows.push_back(exact_row(Family::shape, "transpose", 1, 1, {{"perm", AttrKind::ints, {}}}, infer_transpose,
                           eval_transpose, {"C1: perm is a permutation of the axes"}));
  rows.push_back(exact_row(Family::shape, "broadcast_to", 1, 1, {{"dims", AttrKind::dims, {}}},
                           infer_broadcast_to, eval_broadcast_to, {"C1: the shape broadcasts to dims"}));
  rows.push_back(
      exact_row(Family::shape, "slice", 1, 1,
                {{"axes", AttrKind::ints, {}},
                 {"starts", AttrKind::dims, {}},
                 {"sizes", AttrKind::dims, {}},
                 {"steps", AttrKind::ints, {}}},
                infer_slice, eval_slice,
                {"C1: one start, size and step an axis", "C2: no step is 0", "C3: every index read exists"}));
  rows.push_back(exact_row(Family::shape, "concat", 1, -1, {{"axis", AttrKind::integer, {}}}, infer_concat,
                           eval_concat, {"C1: one type", "C2: equal sizes but for the axis"}));
  rows.push_back(exact_row(
      Family::shape, "pad", 1, 2,
      {{"low", AttrKind::dims, {}},
       {"high", AttrKind::dims, {}},
       {"mode", AttrKind::text, Attr(std::string("constant"))}},
      infer_pad, eval_pad,
      {"C1: the mode exists", "C2: one pad an axis, no size below 0", "C3: the value has the element type"}));
  rows.push_back(exact_row(Family::shape, "tile", 1, 1, {{"repeats", AttrKind::dims, {}}}, infer_tile,
                           eval_tile, {"C1: one repeat an axis"}));
  rows.push_back(
      exact_row(Family::shape, "reverse", 1, 1, {{"axes", AttrKind::ints, {}}}, infer_reverse, eval_reverse));
  rows.push_back(exact_row(Family::shape, "iota", 0, 0,
                           {{"dims", AttrKind::dims, {}},
                            {"axis", AttrKind::integer, Attr(int64_t{0})},
                            {"dtype", AttrKind::dtype, {}}},
                           infer_iota, eval_iota, {"C1: the type is a number"}));
  rows.push_back(exact_row(Family::shape, "fill", 1, 1, {{"dims", AttrKind::dims, {}}}, infer_fill, eval_fill,
                           {"C1: one value"}));
  rows.push_back(exact_row(Family::shape, "shape_of", 1, 1, {}, infer_shape_of, eval_shape_of));
  rows.push_back(exact_row(Family::shape, "contents", 0, 0, {{"dims", AttrKind::dims, {}}}, infer_contents,
                           eval_contents));
  rows.push_back(exact_row(Family::shape, "trilu", 1, 2, {{"upper", AttrKind::boolean, Attr(true)}},
                           infer_trilu, eval_trilu, {"C1: rank 2 or more", "C2: an integer diagonal"}));
}

}  // namespace pelton::ir
