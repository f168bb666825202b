// SPDX-License-Identifier: Apache-2.0
// Reshape and its kin, transpose, expand, tile, concat, split, constants, sizes.
#include <algorithm>
#include <numeric>

#include "onnx/import/helpers.h"
#include "onnx/import/shape_math.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

void reshape(NodeContext& c) {
  ValueId x = c.in(0);
  bool allow_zero = c.opset >= 14 && c.get_int("allowzero", 0) != 0;
  std::optional<Shape> request;
  if (c.opset < 5 && !c.has(1)) {
    request = to_shape(c.get_ints("shape"));
  } else if (auto contents = c.contents_of(c.in(1))) {
    request = Shape(*contents);
  }
  if (request) {
    if (auto target = reshape_target(c.b.shape(x), *request, allow_zero, c.ranges()))
      return c.out(0, c.b.reshape(x, *target));
    bool fixed = as_dims(*request) && as_dims(c.b.shape(x));
    if (fixed)
      c.refuse(ErrorCode::bad_shape, cat("cannot reshape ", c.b.type(x).str(), " to ", cat(*request)));
  }
  if (c.opset < 5 && !c.has(1)) c.refuse(ErrorCode::bad_shape, "cannot resolve the shape");
  c.out(0, c.b.op("dynamic_reshape", {x, c.b.cast(c.in(1), DType::i64)}, {{"allow_zero", allow_zero}}));
}

void flatten(NodeContext& c) {
  ValueId x = c.in(0);
  int64_t rank = c.b.rank(x), axis = c.get_int("axis", 1);
  if (axis != rank) axis = c.axis(axis, rank);
  c.out(0, flatten_at(c, x, axis));
}

void transpose(NodeContext& c) {
  ValueId x = c.in(0);
  Ints perm = c.get_ints("perm");
  if (perm.empty())
    for (int64_t i = c.b.rank(x); i-- > 0;) perm.push_back(i);
  for (int64_t& p : perm) p = c.axis(p, c.b.rank(x));
  c.out(0, c.b.transpose(x, perm));
}

void squeeze(NodeContext& c) {
  ValueId x = c.in(0);
  const Shape shape = c.b.shape(x);
  int64_t rank = c.b.rank(x);
  bool given = c.opset < 13 ? c.has_attr("axes") : c.has(1);
  Ints axes = c.axes(axes_of(c, 1, 13), rank);
  Shape out;
  for (int64_t i = 0; i < rank; ++i) {
    const Dim& d = shape[static_cast<size_t>(i)];
    bool listed = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (given && listed && equal(d, 1, c.ranges()) == Tri::no)
      c.refuse(ErrorCode::bad_shape, cat("squeezes axis ", i, " of size ", d.str()));
    // Ranks are static: a size that is not known yet is taken to be other than 1, and the run checks it.
    if (!given && !d.is_const() && equal(d, 1, c.ranges()) == Tri::unknown)
      c.b.graph().checks.push_back({ir::Fact::Relation::not_equal, d, 1, c.place()});
    if (given ? !listed : d != Dim(1)) out.push_back(d);
  }
  c.out(0, c.b.reshape(x, out));
}

void unsqueeze(NodeContext& c) {
  ValueId x = c.in(0);
  Ints axes = axes_of(c, 1, 13);
  axes = c.axes(axes, c.b.rank(x) + static_cast<int64_t>(axes.size()));
  c.out(0, c.b.unsqueeze(x, axes));
}

void expand(NodeContext& c) {
  ValueId x = c.in(0);
  if (auto contents = c.contents_of(c.in(1)))
    if (auto shape = broadcast_shape(c.b.shape(x), Shape(*contents), c.ranges()))
      return c.out(0, c.b.broadcast_to(x, *shape));
  c.out(0, c.b.op("dynamic_broadcast", {x, c.b.cast(c.in(1), DType::i64)}));
}

void tile(NodeContext& c) {
  ValueId x = c.in(0);
  if (c.opset < 6) {  // tiles along one axis, both of them inputs
    Ints tiles = c.need_ints(1, "tiles"), axis = c.need_ints(2, "axis");
    Shape repeats(static_cast<size_t>(c.b.rank(x)), Dim(1));
    repeats[static_cast<size_t>(c.axis(axis.at(0), c.b.rank(x)))] = tiles.at(0);
    return c.out(0, c.b.op("tile", {x}, {{"repeats", repeats}}));
  }
  auto contents = c.contents_of(c.in(1));
  if (contents) return c.out(0, c.b.op("tile", {x}, {{"repeats", Shape(*contents)}}));
  c.out(0, c.b.op("dynamic_tile", {x, c.b.cast(c.in(1), DType::i64)}));
}

void concat_op(NodeContext& c) {
  std::vector<ValueId> parts = c.all_inputs();
  if (parts.empty()) c.refuse(ErrorCode::bad_format, "joins nothing");
  if (c.opset >= 4 && !c.has_attr("axis"))
    c.refuse(ErrorCode::bad_format, "attribute 'axis' is required and absent");
  int64_t axis = c.axis(c.get_int("axis", 1), c.b.rank(parts[0]));
  c.out(0, concat(c, std::move(parts), axis));
}

void split(NodeContext& c) {
  ValueId x = c.in(0);
  int64_t axis = c.axis(c.get_int("axis", 0), c.b.rank(x));
  Dim size = c.b.shape(x)[static_cast<size_t>(axis)];
  Shape sizes;
  if (c.opset < 13 ? c.has_attr("split") : c.has(1)) {
    if (c.opset < 13) {
      sizes = to_shape(c.get_ints("split"));
    } else {
      sizes = Shape(c.sizes_in(1, "the sizes"));
    }
    if (sizes.size() != c.output_count())
      c.refuse(ErrorCode::bad_shape, cat("has ", c.output_count(), " outputs and ", sizes.size(), " sizes"));
    if (equal(std::accumulate(sizes.begin(), sizes.end(), Dim(0)), size, c.ranges()) == Tri::no)
      c.refuse(ErrorCode::bad_shape, cat("splits ", size.str(), " into ", cat(sizes)));
  } else {
    auto parts = static_cast<int64_t>(c.output_count());
    if (c.opset >= 18 && c.has_attr("num_outputs") && c.get_int("num_outputs", 0) != parts)
      c.refuse(ErrorCode::bad_shape,
               cat("has ", parts, " outputs and num_outputs ", c.get_int("num_outputs", 0)));
    if (c.opset < 18 && divisible_by(size, parts, c.ranges()) == Tri::no)
      c.refuse(ErrorCode::bad_shape, cat("cannot split ", size.str(), " into ", parts, " equal parts"));
    Dim chunk = c.opset < 18 ? Dim::floor_div(size, parts) : Dim::ceil_div(size, parts);
    sizes.assign(static_cast<size_t>(parts - 1), chunk);
    sizes.push_back(size - chunk * (parts - 1));
  }
  Dim start = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (c.wants(i)) c.out(i, slice_axis(c, x, axis, start, sizes[i]));
    start = start + sizes[i];
  }
}

void shape_op(NodeContext& c) {
  ValueId x = c.in(0);
  int64_t rank = c.b.rank(x), start = c.get_int("start", 0), end = c.get_int("end", rank);
  auto cut = [&](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + rank : v, 0, rank); };
  start = cut(start);
  end = std::max(cut(end), start);
  ValueId all = c.b.op("shape_of", {x});
  c.out(0, start == 0 && end == rank ? all : slice_axis(c, all, 0, start, end - start));
}

void size_op(NodeContext& c) {
  Shape count{element_count(c.b.shape(c.in(0)))};
  c.out(0, c.b.reshape(c.b.op("contents", {}, {{"dims", count}}), {}));
}

void constant_of_shape(NodeContext& c) {
  Tensor value = c.get_tensor("value");
  if (!value.defined()) value = Tensor::scalar(0.0f);
  if (value.count() != 1) c.refuse(ErrorCode::bad_shape, cat("takes one value, not ", value.str()));
  ValueId scalar = c.b.constant(value.reshaped({}));
  if (auto contents = c.contents_of(c.in(0))) {
    bool sizes = true;
    for (const Dim& d : *contents) sizes = sizes && surely_not_negative(d, c.ranges());
    if (sizes) return c.out(0, c.b.op("fill", {scalar}, {{"dims", Shape(*contents)}}));
  }
  c.out(0, c.b.op("dynamic_fill", {scalar, c.in(0)}));
}

void constant(NodeContext& c) {
  using Type = AttributeView::Type;
  for (const AttributeView& a : c.node.attributes) {
    if (a.name == "value" && a.type == Type::t) return c.out(0, c.b.constant(c.get_tensor("value")));
    if (a.name == "sparse_value" && a.type == Type::sparse_tensor)
      return c.out(0, c.b.constant(sparse_to_tensor(a.sparse_tensors[0], c.scope.source().owner)));
    if (a.name == "value_int") return c.out(0, c.b.constant(Tensor::scalar<int64_t>(a.i)));
    if (a.name == "value_ints")
      return c.out(0, c.b.constant(Tensor::from<int64_t>({static_cast<int64_t>(a.ints.size())}, a.ints)));
    if (a.name == "value_float") return c.out(0, c.b.constant(Tensor::scalar(a.f)));
    if (a.name == "value_floats")
      return c.out(0, c.b.constant(Tensor::from<float>({static_cast<int64_t>(a.floats.size())}, a.floats)));
    if (a.name == "value_string") return c.out(0, c.b.constant(Tensor::of_strings({}, {std::string(a.s)})));
    if (a.name == "value_strings") {
      Strings texts = c.get_texts(a.name);
      return c.out(0, c.b.constant(Tensor::of_strings({static_cast<int64_t>(texts.size())}, texts)));
    }
  }
  c.refuse(ErrorCode::bad_format, "has no value");
}

void range(NodeContext& c) {
  ValueId start = to_scalar(c, c.in(0)), limit = to_scalar(c, c.in(1)), delta = to_scalar(c, c.in(2));
  auto from = c.contents_of(start), to = c.contents_of(limit), step = c.contents_of(delta);
  if (from && to && step && (*step)[0].is_const() && (*step)[0] != Dim(0)) {
    int64_t by = (*step)[0].value();
    Dim span = by > 0 ? (*to)[0] - (*from)[0] : (*from)[0] - (*to)[0];
    Shape count{greatest(Dim::ceil_div(span, by > 0 ? by : -by), 0, c.ranges())};
    DType t = c.b.dtype(start);
    ValueId y = c.b.op("iota", {}, {{"dims", count}, {"axis", int64_t{0}}, {"dtype", t}});
    if (by != 1) y = c.b.mul(y, delta);
    if ((*from)[0] != Dim(0)) y = c.b.add(y, start);
    return c.out(0, y);
  }
  c.out(0, c.b.op("range", {start, limit, delta}));
}

void trilu(NodeContext& c) {
  std::vector<ValueId> inputs{c.in(0)};
  if (c.has(1)) inputs.push_back(to_scalar(c, c.in(1)));
  c.out(0, c.b.op("trilu", inputs, {{"upper", c.get_int("upper", 1) != 0}}));
}

void eye_like(NodeContext& c) {
  ValueId x = c.in(0);
  const Shape shape = c.b.shape(x);
  if (shape.size() != 2) c.refuse(ErrorCode::bad_shape, cat("needs a matrix, not ", c.b.type(x).str()));
  auto line = [&](Shape dims, int64_t axis) {
    return c.b.op("iota", {}, {{"dims", dims}, {"axis", axis}, {"dtype", DType::i64}});
  };
  ValueId row = line({shape.at(0), 1}, 0), column = line({1, shape.at(1)}, 1);
  ValueId diagonal = c.b.add(row, c.b.scalar(DType::i64, static_cast<double>(c.get_int("k", 0))));
  c.out(0, c.b.cast(c.b.op("eq", {diagonal, column}), c.get_dtype("dtype", c.b.dtype(x))));
}

}  // namespace

void add_shape(ImportTable& table) {
  table.add("Reshape", reshape);
  table.add("Flatten", flatten);
  table.add("Transpose", transpose);
  table.add("Squeeze", squeeze);
  table.add("Unsqueeze", unsqueeze);
  table.add("Expand", expand);
  table.add("Tile", tile);
  table.add("Concat", concat_op);
  table.add("Split", split);
  table.add("Shape", shape_op);
  table.add("Size", size_op);
  table.add("ConstantOfShape", constant_of_shape);
  table.add("Constant", constant);
  table.add("Range", range);
  table.add("Trilu", trilu);
  table.add(kMsDomain, "Trilu", trilu);
  table.add("EyeLike", eye_like);
}

}  // namespace pelton::onnx
