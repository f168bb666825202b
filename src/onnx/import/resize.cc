// SPDX-License-Identifier: Apache-2.0
// Resampling: Resize, Upsample, GridSample, AffineGrid.
#include <cmath>
#include <numeric>

#include "onnx/import/helpers.h"
#include "onnx/import/run_sizes.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

int64_t whole(NodeContext& c, double size) {
  constexpr double kLimit = 1LL << 53;
  if (!(size >= 0 && size < kLimit))
    c.refuse(ErrorCode::bad_shape, cat("an axis of ", size, " elements comes out"));
  return static_cast<int64_t>(size);
}

// Output size of an axis: floor(size * scale), the scale as a float. Whole scales keep symbols exact.
Dim scaled(NodeContext& c, const Dim& size, double scale) {
  if (scale == std::floor(scale) && scale >= 1 && scale < 1e6) return size * static_cast<int64_t>(scale);
  if (size.is_const()) return whole(c, std::floor(static_cast<double>(size.value()) * scale));
  double inverse = 1 / scale;
  if (inverse == std::floor(inverse) && inverse < 1e6)
    return Dim::floor_div(size, static_cast<int64_t>(inverse));
  // A decimal fraction p / q that the float stands for.
  for (int64_t q = 2; q <= 1000 && scale > 0 && scale < 1e6; ++q) {
    double p = std::round(scale * static_cast<double>(q));
    if (std::fabs(p / static_cast<double>(q) - scale) < 1e-7 * scale)
      return Dim::floor_div(size * static_cast<int64_t>(p), q);
  }
  ValueId exact = c.b.cast(c.b.op("contents", {}, {{"dims", Shape{size}}}), DType::f64);
  ValueId cut = c.b.op("floor", {c.b.mul(exact, c.b.scalar(DType::f64, scale))});
  return run_sizes(c, c.b.cast(cut, DType::i64), "the sizes").at(0);
}

struct Request {
  ValueId x;
  Ints axes;
  Shape sizes;  // of the axes
  Floats scales;
};

Request from_scales(NodeContext& c, ValueId x, Ints axes, const Floats& scales) {
  if (scales.size() != axes.size())
    c.refuse(ErrorCode::bad_shape, cat("has ", scales.size(), " scales for ", axes.size(), " axes"));
  Request r{x, std::move(axes), {}, scales};
  for (size_t i = 0; i < scales.size(); ++i) {
    if (!(scales[i] > 0) || std::isinf(scales[i]))
      c.refuse(ErrorCode::bad_shape, cat("has scale ", scales[i]));
    r.sizes.push_back(scaled(c, c.b.shape(x)[static_cast<size_t>(r.axes[i])], scales[i]));
  }
  return r;
}

// Sizes as given, or the largest (smallest) scale that fits them all for every axis.
Request from_sizes(NodeContext& c, ValueId x, Ints axes, const Contents& sizes) {
  if (sizes.size() != axes.size())
    c.refuse(ErrorCode::bad_shape, cat("has ", sizes.size(), " sizes for ", axes.size(), " axes"));
  Request r{x, std::move(axes), Shape(sizes), {}};
  std::string policy = c.get_text("keep_aspect_ratio_policy", "stretch");
  bool larger = policy == "not_smaller";
  if (policy == "stretch") {
    // The scale of an axis is the ratio of its sizes; the op takes it from the shapes.
    return r;
  }
  double scale = larger ? 0 : INFINITY;
  for (size_t i = 0; i < sizes.size(); ++i) {
    double ratio =
        static_cast<double>(c.need_const(sizes[i], "a size")) /
        static_cast<double>(c.need_const(c.b.shape(x)[static_cast<size_t>(r.axes[i])], "an axis to resize"));
    scale = larger ? std::max(scale, ratio) : std::min(scale, ratio);
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    double size = scale * static_cast<double>(c.b.shape(x)[static_cast<size_t>(r.axes[i])].value());
    r.sizes[i] = whole(c, std::floor(size + 0.5));
    r.scales.push_back(scale);
  }
  return r;
}

void emit(NodeContext& c, const Request& r, Attrs attrs, ValueId roi) {
  Shape dims = c.b.shape(r.x);
  for (size_t i = 0; i < r.axes.size(); ++i) dims[static_cast<size_t>(r.axes[i])] = r.sizes[i];
  attrs["dims"] = dims;
  attrs["axes"] = r.axes;
  if (!r.scales.empty()) attrs["scales"] = r.scales;
  std::vector<ValueId> inputs{r.x};
  if (roi) inputs.push_back(roi);
  c.out(0, c.b.op("resample", inputs, std::move(attrs)));
}

void resize(NodeContext& c) {
  ValueId x = c.in(0);
  Ints axes = c.get_ints("axes");
  if (axes.empty()) {
    axes.resize(static_cast<size_t>(c.b.rank(x)));
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (int64_t& a : axes) a = c.axis(a, c.b.rank(x));
  size_t scales_at = c.opset < 11 ? 1 : 2;
  auto known = [&](size_t i) { return c.has(i) ? c.value_of(c.in(i)) : std::nullopt; };
  auto scales = known(scales_at);
  // Exporters pass an empty tensor where an optional input is absent.
  bool by_scale = c.has(scales_at) && !(scales && scales->count() == 0);
  Request r;
  if (by_scale) {
    r = from_scales(c, x, axes, to_doubles(c.need_value(c.in(scales_at), "the scales")));
  } else {
    const bool stretches = c.get_text("keep_aspect_ratio_policy", "stretch") == "stretch";
    r = from_sizes(c, x, axes, stretches ? c.sizes_in(3, "the sizes") : c.need_contents(3, "the sizes"));
  }
  std::string coordinates =
      c.get_text("coordinate_transformation_mode", c.opset < 11 ? "asymmetric" : "half_pixel");
  Attrs attrs{{"mode", c.get_text("mode", "nearest")},
              {"coordinates", coordinates},
              {"nearest", c.get_text("nearest_mode", c.opset < 11 ? "floor" : "round_prefer_floor")},
              {"cubic", c.get_real("cubic_coeff_a", -0.75)},
              {"exclude_outside", c.get_int("exclude_outside", 0) != 0},
              {"antialias", c.get_int("antialias", 0) != 0},
              {"extrapolation", c.get_real("extrapolation_value", 0)}};
  ValueId roi = c.opset >= 11 && coordinates == "tf_crop_and_resize" ? c.opt(1) : ValueId{};
  emit(c, r, std::move(attrs), roi);
}

void upsample(NodeContext& c) {
  ValueId x = c.in(0);
  Floats scales;
  if (c.opset < 7) {
    scales = {1, 1, c.get_real("height_scale", 1), c.get_real("width_scale", 1)};
  } else if (c.opset < 9) {
    scales = c.get_reals("scales");
  } else {
    scales = to_doubles(c.need_value(c.in(1), "the scales"));
  }
  Ints axes(static_cast<size_t>(c.b.rank(x)));
  std::iota(axes.begin(), axes.end(), 0);
  std::string mode = c.get_text("mode", "nearest");
  if (mode == "bilinear") mode = "linear";
  emit(c, from_scales(c, x, axes, scales),
       {{"mode", mode}, {"coordinates", std::string("asymmetric")}, {"nearest", std::string("floor")}}, {});
}

void grid_sample(NodeContext& c) {
  std::string mode = c.get_text("mode", c.opset < 20 ? "bilinear" : "linear");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  c.out(0, c.b.op("grid_sample", {c.in(0), c.in(1)},
                  {{"mode", mode},
                   {"padding", c.get_text("padding_mode", "zeros")},
                   {"align_corners", c.get_int("align_corners", 0) != 0}}));
}

void affine_grid(NodeContext& c) {
  Contents size = c.sizes_in(1, "the size");
  c.out(0, c.b.op("affine_grid", {c.in(0)},
                  {{"dims", Shape(size)}, {"align_corners", c.get_int("align_corners", 0) != 0}}));
}

}  // namespace

void add_resize(ImportTable& table) {
  table.add("Resize", resize);
  table.add("Upsample", upsample);
  table.add("GridSample", grid_sample);
  table.add("AffineGrid", affine_grid);
}

}  // namespace pelton::onnx
