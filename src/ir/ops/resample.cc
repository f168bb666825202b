// SPDX-License-Identifier: Apache-2.0
// Resampling: resize along axes, sampling at grid positions, grids of affine maps. Rows and inference;
// evaluation in resample_eval.cc and grid_eval.cc. Letters: N batch, C channels, S... spatial sizes, O...
// result sizes, R the number of spatial axes.
#include "ir/ops/resample.h"

#include <algorithm>

#include "ir/builder.h"
#include "ir/ops/common.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;

void require_one_of(const InferContext& c, std::string_view attr,
                    std::initializer_list<std::string_view> values, std::string_view tag) {
  const std::string& v = c.node.get_text(attr);
  c.require(std::find(values.begin(), values.end(), v) != values.end(), ErrorCode::usage, tag,
            cat("has no ", attr, " '", v, "'"));
}

void infer_resample(InferContext& c) {
  require_one_of(c, "mode", {"nearest", "linear", "cubic"}, "C1");
  require_one_of(c, "coordinates",
                 {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                  "tf_half_pixel_for_nn", "tf_crop_and_resize"},
                 "C1");
  require_one_of(c, "nearest", {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}, "C1");
  c.require(c.node.get_text("mode") == "nearest" || supports_number(c.dtype(0)), ErrorCode::bad_type, "C2",
            cat("does not blend ", name(c.dtype(0)), " elements"));
  const Shape &x = c.shape(0), &dims = c.node.get_dims("dims");
  Ints axes = c.axes(c.node.get_ints("axes"), c.rank(0));
  c.require(dims.size() == x.size(), kShape, "C3",
            cat("needs ", x.size(), " result sizes, not ", dims.size()));
  for (size_t d = 0; d < dims.size(); ++d)
    if (!std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(d))) c.same(dims[d], x[d], "C3");
  const Floats& scales = c.node.get_floats("scales");
  c.require(scales.empty() || scales.size() == axes.size(), ErrorCode::usage, "C4",
            cat("has ", scales.size(), " scales for ", axes.size(), " axes"));
  for (double s : scales) c.require(s > 0, ErrorCode::usage, "C4", cat("has scale ", s));
  bool crops = c.node.get_text("coordinates") == "tf_crop_and_resize";
  c.require(!crops || c.has(1), ErrorCode::usage, "C5", "needs the region of tf_crop_and_resize");
  if (c.has(1)) {
    c.require(supports_float(c.dtype(1)) && c.rank(1) == 1, ErrorCode::bad_type, "C5",
              cat("needs the region as floats of rank 1, not ", c.type(1).str()));
    c.same(c.shape(1)[0], 2 * static_cast<int64_t>(axes.size()), "C5");
  }
  c.output(0, c.dtype(0), dims);
}

void infer_grid_sample(InferContext& c) {
  require_one_of(c, "mode", {"nearest", "linear", "cubic"}, "C1");
  require_one_of(c, "padding", {"zeros", "border", "reflection"}, "C1");
  c.require(supports_float(c.dtype(0)) && supports_float(c.dtype(1)), ErrorCode::bad_type, "C2",
            cat("needs floats, not ", name(c.dtype(0)), " and ", name(c.dtype(1))));
  const Shape &x = c.shape(0), &grid = c.shape(1);
  c.require(x.size() >= 3 && grid.size() == x.size(), kShape, "C3",
            cat("needs data and grid of one rank, 3 or more, not ", cat(x), " and ", cat(grid)));
  c.same(grid.back(), static_cast<int64_t>(x.size()) - 2, "C3");
  Shape out{c.same(x[0], grid[0], "C3"), x[1]};
  out.insert(out.end(), grid.begin() + 1, grid.end() - 1);
  c.output(0, c.dtype(0), out);
}

void infer_affine_grid(InferContext& c) {
  c.require(supports_float(c.dtype(0)), ErrorCode::bad_type, "C1",
            cat("needs floats, not ", name(c.dtype(0))));
  const Shape &theta = c.shape(0), &dims = c.node.get_dims("dims");
  c.require(theta.size() == 3 && (dims.size() == 4 || dims.size() == 5), kShape, "C2",
            cat("needs matrices [N,R,R+1] and sizes [N,C,S...], not ", cat(theta), " and ", cat(dims)));
  auto spatial = static_cast<int64_t>(dims.size()) - 2;
  c.same(theta[0], dims[0], "C2");
  c.same(theta[1], spatial, "C2");
  c.same(theta[2], spatial + 1, "C2");
  Shape out{dims[0]};
  out.insert(out.end(), dims.begin() + 2, dims.end());
  out.push_back(spatial);
  c.output(0, c.dtype(0), out);
}

// Base coordinates of an axis of size n: align_corners spans -1 to 1, else cell centres. The matrix applies
// to [x, y, (z), 1], x being the last spatial axis.
std::vector<ValueId> decompose_affine_grid(Builder& b, const Node& node) {
  ValueId theta = node.inputs[0];
  DType t = b.dtype(theta), wide = t == DType::f64 ? t : DType::f32;
  const Shape dims = node.get_dims("dims");
  Shape spatial(dims.begin() + 2, dims.end());
  bool corners = node.get_bool("align_corners");
  std::vector<ValueId> columns;
  auto as_column = [&](ValueId v) {
    return b.reshape(b.broadcast_to(v, spatial), {element_count(spatial), 1});
  };
  for (size_t d = spatial.size(); d-- > 0;) {
    Shape line(spatial.size(), Dim(1));
    line[d] = spatial[d];
    ValueId i = b.op("iota", {}, {{"dims", line}, {"axis", static_cast<int64_t>(d)}, {"dtype", wide}});
    ValueId size = b.cast(b.op("contents", {}, {{"dims", Shape{spatial[d]}}}), wide);
    size = b.reshape(size, {});
    if (corners) {  // one position stands at 0
      ValueId span = b.op("max", {b.sub(size, b.scalar(wide, 1)), b.scalar(wide, 1)});
      ValueId first = b.op("max", {b.sub(b.scalar(wide, 1), size), b.scalar(wide, -1)});
      i = b.add(first, b.div(b.mul(i, b.scalar(wide, 2)), span));
    } else {
      i = b.sub(b.div(b.add(b.mul(i, b.scalar(wide, 2)), b.scalar(wide, 1)), size), b.scalar(wide, 1));
    }
    columns.push_back(as_column(i));
  }
  columns.push_back(as_column(b.scalar(wide, 1)));
  ValueId base = b.op("concat", columns, {{"axis", int64_t{1}}});
  ValueId grid = b.op("matmul", {base, b.cast(theta, wide)}, {{"transpose_b", true}});
  Shape out{dims[0]};
  out.insert(out.end(), spatial.begin(), spatial.end());
  out.push_back(static_cast<int64_t>(spatial.size()));
  return {b.cast(b.reshape(grid, out), t)};
}

// With fixed sizes: a gather an axis for nearest, else a product with the axis's [to, from] weights.
std::vector<ValueId> decompose_resample(Builder& b, const Node& node) {
  ValueId x = node.inputs[0];
  auto from = as_dims(b.shape(x)), to = as_dims(node.get_dims("dims"));
  DType t = b.dtype(x);
  ResampleOptions options = resample_options(node);
  bool blend = options.mode != "nearest";
  if (!from || !to || node.inputs.size() > 1 || element_count(*from) == 0 || (blend && !supports_float(t)))
    return {};
  const Ints axes = node.get_ints("axes");
  const Floats scales = node.get_floats("scales");
  DType wide = t == DType::f64 ? t : DType::f32;
  if (blend) x = b.cast(x, wide);
  int64_t rank = b.rank(x);
  for (size_t k = 0; k < axes.size(); ++k) {
    int64_t a = axes[k] < 0 ? axes[k] + rank : axes[k];
    ResampleAxis axis;
    axis.from = (*from)[static_cast<size_t>(a)];
    axis.to = (*to)[static_cast<size_t>(a)];
    axis.scale_given = !scales.empty();
    axis.scale = axis.scale_given ? scales[k] : static_cast<double>(axis.to) / static_cast<double>(axis.from);
    constexpr int64_t kMostWeights = 1 << 24;
    if (axis.to > kMostWeights / std::max<int64_t>(1, axis.from)) return {};
    Ints picks;
    std::vector<double> weights(static_cast<size_t>(axis.to * axis.from), 0.0);
    bool identity = axis.from == axis.to;
    for (int64_t o = 0; o < axis.to; ++o)
      for (const Tap& tap : resample_taps(axis, options, o)) {
        picks.push_back(tap.index);
        weights[static_cast<size_t>(o * axis.from + tap.index)] += tap.weight;
        identity &= tap.index == o && tap.weight == 1;
      }
    if (identity) continue;
    if (!blend) {
      x = b.op("gather", {x, b.ints(picks)}, {{"axis", a}});
      continue;
    }
    Ints last;  // the axis goes last and back
    for (int64_t d = 0; d < rank; ++d) last.push_back(d);
    std::swap(last[static_cast<size_t>(a)], last.back());
    ValueId w = b.constant(from_doubles(wide, {axis.to, axis.from}, weights));
    x = b.transpose(b.op("matmul", {b.transpose(x, last), w}, {{"transpose_b", true}}), last);
  }
  return {b.cast(x, t)};
}

double taps_flops(const Node& node, const std::vector<Dims>& out, double axes) {
  const std::string& mode = node.get_text("mode");
  double taps = mode == "cubic" ? 4 : mode == "linear" ? 2 : 1;
  return 2 * taps * axes * static_cast<double>(element_count(out[0]));
}
double resample_flops(const Graph&, const Node& node, const std::vector<Dims>&,
                      const std::vector<Dims>& out) {
  return taps_flops(node, out, static_cast<double>(node.get_ints("axes").size()));
}
double grid_flops(const Graph&, const Node& node, const std::vector<Dims>& in, const std::vector<Dims>& out) {
  return taps_flops(node, out, static_cast<double>(in[0].size() - 2));
}

}  // namespace

void add_resample(OpRows& rows) {
  auto text = [](const char* v) { return Attr(std::string(v)); };
  OpDef row;
  row.name = "resample";
  row.family = Family::composite;
  row.max_inputs = 2;
  row.attrs = {{"dims", AttrKind::dims, {}},
               {"axes", AttrKind::ints, {}},
               {"scales", AttrKind::floats, Attr(Floats{})},
               {"mode", AttrKind::text, text("nearest")},
               {"coordinates", AttrKind::text, text("half_pixel")},
               {"nearest", AttrKind::text, text("round_prefer_floor")},
               {"cubic", AttrKind::real, Attr(-0.75)},
               {"exclude_outside", AttrKind::boolean, Attr(false)},
               {"antialias", AttrKind::boolean, Attr(false)},
               {"extrapolation", AttrKind::real, Attr(0.0)}};
  row.constraints = {"C1: mode, coordinates and nearest exist", "C2: blending modes take numbers",
                     "C3: dims are the result's sizes and change along the axes only",
                     "C4: no scales, or a positive one an axis",
                     "C5: tf_crop_and_resize has a region: starts, then ends, of the axes"};
  row.infer = infer_resample;
  row.eval = eval_resample;
  row.flops = resample_flops;
  row.decompose = decompose_resample;
  row.layout = LayoutFreedom::channels;
  row.sharding = "other_axes";
  row.batching = "shift_axes";
  rows.push_back(row);

  row = OpDef();
  row.name = "grid_sample";
  row.family = Family::composite;
  row.min_inputs = row.max_inputs = 2;
  row.attrs = {{"mode", AttrKind::text, text("linear")},
               {"padding", AttrKind::text, text("zeros")},
               {"align_corners", AttrKind::boolean, Attr(false)}};
  row.constraints = {"C1: mode and padding exist", "C2: data and grid are floats",
                     "C3: x[N,C,S...] and grid[N,O...,R]"};
  row.infer = infer_grid_sample;
  row.eval = eval_grid_sample;
  row.flops = grid_flops;
  row.sharding = "nc*,n*->nc*";
  row.batching = "merge_batch";
  rows.push_back(row);

  row = OpDef();
  row.name = "affine_grid";
  row.family = Family::composite;
  row.attrs = {{"dims", AttrKind::dims, {}}, {"align_corners", AttrKind::boolean, Attr(false)}};
  row.constraints = {"C1: the matrices are floats",
                     "C2: theta[N,R,R+1] for dims [N,C,S...] with 2 or 3 spatial axes"};
  row.infer = infer_affine_grid;
  row.eval = eval_affine_grid;
  row.decompose = decompose_affine_grid;
  row.sharding = "n*->n*";
  row.batching = "merge_batch";
  rows.push_back(std::move(row));
}

}  // namespace pelton::ir
