// SPDX-License-Identifier: Apache-2.0
// Pooling and regions of interest. x[N,C,S...].
#include <limits>
#include <numeric>

#include "onnx/import/helpers.h"
#include "onnx/import/quantize.h"
#include "onnx/import/shape_math.h"
#include "onnx/import/table.h"
#include "onnx/import/windows.h"

namespace pelton::onnx {
namespace {

Windows pool_windows(NodeContext& c, ValueId x) {
  Ints kernel = c.get_ints("kernel_shape");
  if (kernel.empty()) c.refuse(ErrorCode::bad_format, "attribute 'kernel_shape' is required and absent");
  return windows_of(c, x, kernel);
}
Attrs pool_attrs(NodeContext& c, const Windows& w) {
  return {{"kernel", w.kernel}, {"strides", w.strides}, {"dilations", w.dilations},
          {"low", w.low},       {"high", w.high},       {"ceil", c.get_int("ceil_mode", 0) != 0}};
}

void max_pool(NodeContext& c) {
  Attrs attrs = pool_attrs(c, pool_windows(c, c.in(0)));
  attrs["row_major"] = c.get_int("storage_order", 0) == 0;
  auto y = c.b.ops("max_pool", {c.in(0)}, std::move(attrs), c.wants(1) ? 2 : 1);
  c.out(0, y[0]);
  if (c.wants(1)) c.out(1, y[1]);
}
ValueId averaged(NodeContext& c, ValueId x) {
  Attrs attrs = pool_attrs(c, pool_windows(c, x));
  attrs["count_padding"] = c.get_int("count_include_pad", 0) != 0;
  return c.b.op("avg_pool", {x}, std::move(attrs));
}
void average_pool(NodeContext& c) {
  c.out(0, averaged(c, c.in(0)));
}
// x, x_scale, x_zero, y_scale, y_zero
void qlinear_average_pool(NodeContext& c) {
  const bool last = c.get_int("channels_last", 0) != 0;
  ValueId x = dequantized(c, c.in(0), c.in(1), c.opt(2));
  ValueId y = averaged(c, last ? channels_first(c, x) : x);
  c.out(0, quantized(c, last ? channels_last(c, y) : y, c.in(3), c.opt(4), c.b.dtype(c.in(0))));
}
// x[N,S...,C]
void nhwc_max_pool(NodeContext& c) {
  ValueId x = channels_first(c, c.in(0));
  Attrs attrs = pool_attrs(c, pool_windows(c, x));
  c.out(0, channels_last(c, c.b.op("max_pool", {x}, std::move(attrs))));
}
void lp_pool(NodeContext& c) {
  Attrs attrs = pool_attrs(c, pool_windows(c, c.in(0)));
  int64_t p = c.opset < 2 ? static_cast<int64_t>(c.get_real("p", 2)) : c.get_int("p", 2);
  attrs["p"] = p;
  c.out(0, c.b.op("lp_pool", {c.in(0)}, std::move(attrs)));
}

void max_unpool(NodeContext& c) {
  Windows w = pool_windows(c, c.in(0));
  std::vector<ValueId> inputs{c.in(0), c.in(1)};
  if (c.has(2)) inputs.push_back(c.in(2));
  c.out(0, c.b.op("max_unpool", inputs,
                  {{"kernel", w.kernel}, {"strides", w.strides}, {"low", w.low}, {"high", w.high}}));
}

Ints spatial(NodeContext& c, ValueId x) {
  Ints axes(static_cast<size_t>(std::max<int64_t>(0, c.b.rank(x) - 2)));
  std::iota(axes.begin(), axes.end(), 2);
  return axes;
}
void global_average_pool(NodeContext& c) {
  c.out(0, reduce(c, "reduce_mean", c.in(0), spatial(c, c.in(0)), true));
}
void global_max_pool(NodeContext& c) {
  c.out(0, reduce(c, "reduce_max", c.in(0), spatial(c, c.in(0)), true));
}
void global_lp_pool(NodeContext& c) {
  ValueId x = c.in(0);
  double p = c.opset < 2 ? c.get_real("p", 2) : static_cast<double>(c.get_int("p", 2));
  ValueId powers = c.b.op("pow", {c.b.op("abs", {x}), c.b.like(x, p)});
  ValueId sum = reduce(c, "reduce_sum", powers, spatial(c, x), true);
  c.out(0, c.b.op("pow", {sum, c.b.like(x, 1 / p)}));
}

void roi_align(NodeContext& c) {
  std::string mode = c.get_text("mode", "avg");
  // Before version 16 coordinates were not shifted by half a pixel.
  std::string coordinates =
      c.get_text("coordinate_transformation_mode", c.opset < 16 ? "output_half_pixel" : "half_pixel");
  c.out(0, c.b.op("roi_align", {c.in(0), c.in(1), c.b.cast(c.in(2), DType::i64)},
                  {{"height", c.get_int("output_height", 1)},
                   {"width", c.get_int("output_width", 1)},
                   {"sampling", c.get_int("sampling_ratio", 0)},
                   {"scale", c.get_real("spatial_scale", 1)},
                   {"mode", mode},
                   {"half_pixel", coordinates == "half_pixel"}}));
}
void max_roi_pool(NodeContext& c) {
  Ints size = c.get_ints("pooled_shape");
  if (size.size() != 2) c.refuse(ErrorCode::bad_format, cat("pooled_shape ", size, " is not two sizes"));
  c.out(0, c.b.op("max_roi_pool", {c.in(0), c.in(1)},
                  {{"height", size[0]}, {"width", size[1]}, {"scale", c.get_real("spatial_scale", 1)}}));
}

void nms(NodeContext& c) {
  auto scalar = [&](size_t i, DType t) {
    return c.has(i) ? c.b.cast(to_scalar(c, c.in(i)), t) : c.b.scalar(t, 0);
  };
  ValueId score = c.has(4) ? scalar(4, DType::f32)
                           : c.b.constant(Tensor::scalar(-std::numeric_limits<float>::infinity()));
  c.out(0, c.b.op("nms", {c.in(0), c.in(1), scalar(2, DType::i64), scalar(3, DType::f32), score},
                  {{"center_box", c.get_int("center_point_box", 0) != 0}}));
}

}  // namespace

void add_pool(ImportTable& table) {
  table.add("MaxPool", max_pool);
  table.add("AveragePool", average_pool);
  table.add(kMsDomain, "QLinearAveragePool", qlinear_average_pool);
  table.add(kMsDomain, "NhwcMaxPool", nhwc_max_pool);
  table.add("LpPool", lp_pool);
  table.add("MaxUnpool", max_unpool);
  table.add("GlobalAveragePool", global_average_pool);
  table.add("GlobalMaxPool", global_max_pool);
  table.add("GlobalLpPool", global_lp_pool);
  table.add("RoiAlign", roi_align);
  table.add("MaxRoiPool", max_roi_pool);
  table.add("NonMaxSuppression", nms);
}

}  // namespace pelton::onnx
