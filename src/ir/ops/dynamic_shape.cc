// SPDX-License-Identifier: Apache-2.0
// Movement ops whose sizes are operands: rows and inference. Where the operands are known, symbolically or as
// numbers, the result has those sizes (dynamic_shape_known.cc); else it gets fresh symbols. Evaluation in
// dynamic_shape_eval.cc.
#include "ir/ops/dynamic_shape.h"

#include <algorithm>
#include <cmath>

#include "ir/builder.h"
#include "ir/ops/common.h"
#include "ir/ops/exact_row.h"

namespace pelton::ir {

namespace {

constexpr auto kShape = ErrorCode::bad_shape;

// Input i is an integer vector; its length if that is fixed.
std::optional<size_t> vector_length(const InferContext& c, size_t i, std::string_view tag) {
  c.require(is_int(c.dtype(i)) && is_compute(c.dtype(i)) && c.rank(i) == 1, ErrorCode::bad_type, tag,
            cat("needs integers of rank 1 as input ", i, ", not ", c.type(i).str()));
  if (!c.shape(i)[0].is_const()) return std::nullopt;
  return static_cast<size_t>(c.shape(i)[0].value());
}

constexpr size_t kMaxRank = 64;  // a length from a damaged model must not become a rank

size_t fixed_length(const InferContext& c, size_t i, std::string_view tag) {
  auto n = vector_length(c, i, tag);
  if (!n)
    fail(kShape,
         cat(c.node.op->name, " needs input ", i, " of a fixed length, not ", c.type(i).str(),
             ": it gives the rank"),
         cat(c.graph.describe(c.id), ", ", tag), "give the inputs of the model fixed sizes (--shape)");
  c.require(*n <= kMaxRank, kShape, tag,
            cat("has input ", i, " of ", *n, " sizes, more than any tensor has"));
  return *n;
}

Shape fresh_shape(InferContext& c, size_t rank) {
  Shape out;
  for (size_t d = 0; d < rank; ++d) out.push_back(c.fresh_size(0, d, {}));
  return out;
}

int64_t most(const InferContext& c, const Dim& d) {
  return d.range(c.ranges()).max;
}

void infer_dynamic_reshape(InferContext& c) {
  size_t rank = fixed_length(c, 1, "C1");
  auto to = c.contents(1);
  if (to) {
    int64_t open = 0;
    for (const Dim& d : *to) open += d == Dim(-1);
    c.require(open <= 1, ErrorCode::usage, "C2", "leaves more than one size open (-1)");
    if (auto shape = reshape_target(c.shape(0), *to, c.node.get_bool("allow_zero"), c.ranges())) {
      for (const Dim& d : *shape)
        c.require(most(c, d) >= 0, kShape, "C3", cat("cannot view ", cat(c.shape(0)), " as ", cat(*shape)));
      c.same(element_count(c.shape(0)), element_count(*shape), "C3");
      return c.output(0, c.dtype(0), *shape);
    }
  }
  c.output(0, c.dtype(0), fresh_shape(c, rank));
}

void infer_dynamic_broadcast(InferContext& c) {
  size_t length = fixed_length(c, 1, "C1");
  const Shape& x = c.shape(0);
  if (auto to = c.contents(1)) return c.output(0, c.dtype(0), c.broadcast(x, *to, "C2"));
  size_t rank = std::max(length, x.size());
  Shape out;
  for (size_t d = 0; d < rank; ++d) {
    size_t skip = rank - x.size();
    // Sizes that the operand cannot change: axes it does not reach, and those above 1.
    bool kept = d >= skip && (d < rank - length || x[d - skip].range(c.ranges()).min > 1);
    out.push_back(kept ? x[d - skip] : c.fresh_size(0, d, {}));
  }
  c.output(0, c.dtype(0), out);
}

// The axes an op names in input i; all `rank` of them, in order, where it is absent; none if unknown.
std::optional<std::vector<size_t>> named_axes(const InferContext& c, size_t i, size_t count, int64_t rank) {
  std::vector<size_t> out;
  if (!c.has(i)) {
    c.require(static_cast<int64_t>(count) <= rank, kShape, "C2",
              cat("names ", count, " axes of ", cat(c.shape(0))));
    for (size_t d = 0; d < count; ++d) out.push_back(d);
    return out;
  }
  auto contents = c.contents(i);
  if (!contents) return std::nullopt;
  c.require(contents->size() == count, kShape, "C2",
            cat("names ", contents->size(), " axes for ", count, " entries"));
  for (const Dim& d : *contents) {
    if (!d.is_const()) return std::nullopt;
    const auto axis = static_cast<size_t>(c.axis(d.value(), rank));
    c.require(std::find(out.begin(), out.end(), axis) == out.end(), kShape, "C2",
              cat("names axis ", axis, " twice"));
    out.push_back(axis);
  }
  return out;
}

void infer_dynamic_slice(InferContext& c) {
  Shape out = c.shape(0);
  auto all_fresh = [&] {
    for (size_t d = 0; d < out.size(); ++d) out[d] = c.fresh_size(0, d, {0, most(c, c.shape(0)[d])});
    c.output(0, c.dtype(0), out);
  };
  for (size_t i = 1; i < 5; ++i)
    if (c.has(i)) vector_length(c, i, "C1");
  for (size_t i = 2; i < 5; ++i)
    if (c.has(i)) c.same(c.shape(i)[0], c.shape(1)[0], "C2");
  auto count = vector_length(c, 1, "C1");
  if (!count) return all_fresh();
  auto axes = named_axes(c, 3, *count, c.rank(0));
  if (!axes) return all_fresh();
  auto starts = c.contents(1), ends = c.contents(2), steps = c.contents(4);
  if (!c.has(4)) steps = Contents(*count, Dim(1));
  bool one_dim = out.size() == 1 && *count == 1;
  std::optional<SliceDims> only;
  for (size_t k = 0; k < *count; ++k) {
    size_t axis = (*axes)[k];
    std::optional<SliceDims> part;
    if (steps && (*steps)[k].is_const()) {
      c.require((*steps)[k].value() != 0, ErrorCode::usage, "C3", "has step 0");
      if (starts && ends)
        part = normal_slice((*starts)[k], (*ends)[k], (*steps)[k].value(), c.shape(0)[axis], c.ranges());
    }
    out[axis] = part ? part->size : c.fresh_size(0, axis, {0, most(c, c.shape(0)[axis])});
    only = part;
  }
  c.output(0, c.dtype(0), out);
  auto values = c.contents(0);
  if (!one_dim || !values || !only || !only->start.is_const() || !only->size.is_const()) return;
  Contents picked;
  for (int64_t k = 0; k < only->size.value(); ++k)
    picked.push_back((*values)[static_cast<size_t>(only->start.value() + k * (*steps)[0].value())]);
  c.output_contents(0, picked);
}

void infer_dynamic_pad(InferContext& c) {
  const std::string& mode = c.node.get_text("mode");
  c.require(mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap", ErrorCode::usage,
            "C3", cat("has no mode '", mode, "'"));
  if (c.has(2))
    c.require(c.dtype(2) == c.dtype(0), ErrorCode::bad_type, "C4",
              cat("pads ", name(c.dtype(0)), " with a value of type ", name(c.dtype(2))));
  auto length = vector_length(c, 1, "C1");
  if (c.has(3)) vector_length(c, 3, "C1");
  Shape out = c.shape(0);
  std::optional<std::vector<size_t>> axes;
  if (length) {
    c.require(*length % 2 == 0, kShape, "C2", cat("needs low and high pads, not ", *length, " values"));
    if (!c.has(3))
      c.require(*length == 2 * out.size(), kShape, "C2",
                cat("needs ", 2 * out.size(), " pads for ", cat(out), ", not ", *length));
    axes = named_axes(c, 3, *length / 2, c.rank(0));
  }
  auto pads = c.contents(1);
  if (!axes) {
    out = fresh_shape(c, out.size());
  } else {
    for (size_t k = 0; k < axes->size(); ++k) {
      size_t axis = (*axes)[k];
      out[axis] = pads ? out[axis] + (*pads)[k] + (*pads)[k + axes->size()] : c.fresh_size(0, axis, {});
      c.require(most(c, out[axis]) >= 0, kShape, "C5",
                cat("crops axis ", axis, " to size ", out[axis].str()));
    }
  }
  c.output(0, c.dtype(0), out);
}

void infer_dynamic_tile(InferContext& c) {
  auto length = vector_length(c, 1, "C1");
  Shape out = c.shape(0);
  if (length)
    c.require(*length == out.size(), kShape, "C2", cat("needs ", out.size(), " repeats, not ", *length));
  auto repeats = c.contents(1);
  for (size_t d = 0; d < out.size(); ++d) out[d] = repeats ? out[d] * (*repeats)[d] : c.fresh_size(0, d, {});
  c.output(0, c.dtype(0), out);
}

void infer_dynamic_fill(InferContext& c) {
  c.require(equal(element_count(c.shape(0)), 1, c.ranges()) != Tri::no, kShape, "C2",
            cat("needs one value, not ", cat(c.shape(0))));
  size_t rank = fixed_length(c, 1, "C1");
  auto to = c.contents(1);
  if (!to) return c.output(0, c.dtype(0), fresh_shape(c, rank));
  for (const Dim& d : *to) c.require(most(c, d) >= 0, kShape, "C3", cat("cannot fill ", cat(*to)));
  c.output(0, c.dtype(0), *to);
  auto value = c.contents(0);
  if (value && value->size() == 1 && rank == 1 && (*to)[0].is_const() && (*to)[0].value() <= 64)
    c.output_contents(0, Contents(static_cast<size_t>((*to)[0].value()), (*value)[0]));
}

void infer_range(InferContext& c) {
  DType t = c.dtype(0);
  for (size_t i = 0; i < 3; ++i) {
    c.require(
        supports_number(c.dtype(i)) && c.dtype(i) == t, ErrorCode::bad_type, "C1",
        cat("needs start, limit and delta of one number type, not ", name(t), " and ", name(c.dtype(i))));
    c.require(equal(element_count(c.shape(i)), 1, c.ranges()) != Tri::no, kShape, "C2",
              cat("needs single values, not ", cat(c.shape(i))));
  }
  auto start = c.contents(0), limit = c.contents(1), delta = c.contents(2);
  if (delta && (*delta)[0].is_const())
    c.require((*delta)[0].value() != 0, ErrorCode::usage, "C3", "has delta 0");
  if (start && limit && delta && (*delta)[0].is_const() && (*delta)[0].value() != INT64_MIN) {
    int64_t step = (*delta)[0].value();
    Dim span = step > 0 ? (*limit)[0] - (*start)[0] : (*start)[0] - (*limit)[0];
    Dim size = Dim::max(0, Dim::ceil_div(span, std::abs(step)));
    if (size.range(c.ranges()).min == 0 && span.range(c.ranges()).min >= 0 && std::abs(step) == 1)
      size = span;
    c.output(0, t, {size});
    if (!size.is_const() || size.value() > 64) return;
    Contents values;
    for (int64_t i = 0; i < size.value(); ++i) values.push_back((*start)[0] + i * step);
    return c.output_contents(0, values);
  }
  const Tensor *a = c.constant(0), *b = c.constant(1), *d = c.constant(2);
  if (a && b && d && is_float(t)) {
    c.require(d->get_double(0) != 0, ErrorCode::usage, "C3", "has delta 0");
    const double size = std::ceil((b->get_double(0) - a->get_double(0)) / d->get_double(0));
    c.require(
        std::isfinite(size) && size <= 1e12, ErrorCode::usage, "C3",
        cat("cannot count from ", a->get_double(0), " to ", b->get_double(0), " by ", d->get_double(0)));
    return c.output(0, t, {Dim(static_cast<int64_t>(std::max(0.0, size)))});
  }
  c.output(0, t, {c.fresh_size(0, 0, {})});
}

}  // namespace

void add_dynamic_shape(OpRows& rows) {
  rows.push_back(exact_row(Family::shape, "dynamic_reshape", 2, 2,
                           {{"allow_zero", AttrKind::boolean, Attr(false)}}, infer_dynamic_reshape,
                           eval_dynamic_reshape,
                           {"C1: the shape is an integer vector of fixed length",
                            "C2: at most one size is open", "C3: the number of elements stays"}));
  rows.back().alias = AliasRule::view;
  rows.push_back(
      exact_row(Family::shape, "dynamic_broadcast", 2, 2, {}, infer_dynamic_broadcast, eval_dynamic_broadcast,
                {"C1: the shape is an integer vector of fixed length", "C2: the shapes broadcast"}));
  rows.push_back(exact_row(Family::shape, "dynamic_slice", 3, 5, {}, infer_dynamic_slice, eval_dynamic_slice,
                           {"C1: starts, ends, axes and steps are integer vectors",
                            "C2: they have one length, at most the rank", "C3: no step is 0"}));
  rows.push_back(
      exact_row(Family::shape, "dynamic_pad", 2, 4, {{"mode", AttrKind::text, Attr(std::string("constant"))}},
                infer_dynamic_pad, eval_dynamic_pad,
                {"C1: pads and axes are integer vectors", "C2: one low and one high pad an axis",
                 "C3: the mode exists", "C4: the value has the element type", "C5: no size is below 0"}));
  rows.push_back(exact_row(Family::shape, "dynamic_tile", 2, 2, {}, infer_dynamic_tile, eval_dynamic_tile,
                           {"C1: repeats are an integer vector", "C2: one repeat an axis"}));
  rows.push_back(exact_row(
      Family::shape, "dynamic_fill", 2, 2, {}, infer_dynamic_fill, eval_dynamic_fill,
      {"C1: the shape is an integer vector of fixed length", "C2: one value", "C3: no size is below 0"}));
  rows.push_back(exact_row(
      Family::shape, "range", 3, 3, {}, infer_range, eval_range,
      {"C1: start, limit and delta have one number type", "C2: each is one value", "C3: delta is not 0"}));
}

}  // namespace pelton::ir
