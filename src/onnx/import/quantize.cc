// SPDX-License-Identifier: Apache-2.0
// Quantisation and the integer ops of ai.onnx.
#include "onnx/import/quantize.h"

#include "onnx/import/conv.h"
#include "onnx/import/helpers.h"
#include "onnx/import/table.h"
#include "onnx/import/windows.h"

namespace pelton::onnx {

ValueId quant_parameter(NodeContext& c, ValueId v) {
  if (!v || c.b.rank(v) == 0) return v;
  return element_count(c.b.shape(v)) == Dim(1) ? c.b.reshape(v, {}) : v;
}

namespace {

Attrs axis_attrs(NodeContext& c, ValueId x, ValueId scale, int64_t axis, int64_t block) {
  Attrs attrs{{"axis", int64_t{0}}};
  if (c.b.rank(scale)) attrs["axis"] = c.axis(axis, c.b.rank(x));
  if (block) attrs["block"] = block;
  return attrs;
}
std::vector<ValueId> with_zero(ValueId x, ValueId scale, ValueId zero) {
  std::vector<ValueId> inputs{x, scale};
  if (zero) inputs.push_back(zero);
  return inputs;
}

}  // namespace

ValueId dequantized(NodeContext& c, ValueId q, ValueId scale, ValueId zero, DType to, int64_t axis) {
  scale = quant_parameter(c, scale);
  Attrs attrs = axis_attrs(c, q, scale, axis, 0);
  attrs["to"] = to;
  return c.b.op("dequantize", with_zero(q, scale, quant_parameter(c, zero)), std::move(attrs));
}

ValueId quantized(NodeContext& c, ValueId x, ValueId scale, ValueId zero, DType to, int64_t axis) {
  scale = quant_parameter(c, scale);
  Attrs attrs = axis_attrs(c, x, scale, axis, 0);
  attrs["to"] = to;
  return c.b.op("quantize", with_zero(x, scale, quant_parameter(c, zero)), std::move(attrs));
}

ValueId requantized(NodeContext& c, ValueId sum, ValueId a_scale, ValueId b_scale, ValueId y_scale,
                    ValueId y_zero, int64_t axis) {
  ValueId scale =
      c.b.div(c.b.mul(quant_parameter(c, a_scale), quant_parameter(c, b_scale)), quant_parameter(c, y_scale));
  Attrs attrs{{"to", c.b.dtype(y_zero)}};
  if (c.b.rank(scale)) attrs["axis"] = c.axis(axis, c.b.rank(sum));
  return c.b.op("requantize", {sum, c.b.cast(scale, DType::f32), quant_parameter(c, y_zero)},
                std::move(attrs));
}

namespace {

void quantize_linear(NodeContext& c) {
  ValueId x = c.in(0), scale = c.in(1), zero = c.opt(2);
  int64_t block = c.get_int("block_size", 0);
  DType to = c.get_int("output_dtype", 0) ? c.get_dtype("output_dtype", DType::u8)
             : zero                       ? c.b.dtype(zero)
                                          : DType::u8;
  if (!is_float(c.b.dtype(x))) x = c.b.cast(x, DType::f32);
  if (block == 0) scale = quant_parameter(c, scale), zero = quant_parameter(c, zero);
  Attrs attrs = axis_attrs(c, x, scale, c.get_int("axis", 1), block);
  attrs["to"] = to;
  if (c.get_int("saturate", 1) == 0) attrs["saturate"] = false;
  c.out(0, c.b.op("quantize", with_zero(x, scale, zero), std::move(attrs)));
}

void dequantize_linear(NodeContext& c) {
  ValueId q = c.in(0), scale = c.in(1), zero = c.opt(2);
  int64_t block = c.get_int("block_size", 0);
  if (block == 0) scale = quant_parameter(c, scale), zero = quant_parameter(c, zero);
  Attrs attrs = axis_attrs(c, q, scale, c.get_int("axis", 1), block);
  attrs["to"] = c.get_int("output_dtype", 0) ? c.get_dtype("output_dtype", DType::f32) : c.b.dtype(scale);
  c.out(0, c.b.op("dequantize", with_zero(q, scale, zero), std::move(attrs)));
}

void dynamic_quantize(NodeContext& c) {
  auto y = c.b.ops("dynamic_quantize", {c.in(0)}, {}, 3);
  for (size_t i = 0; i < 3; ++i) c.out(i, y[i]);
}

// x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, [bias i32]. The filter is [O,C/groups,K...] with
// channels_last, too.
void qlinear_conv(NodeContext& c) {
  const bool last = c.get_int("channels_last", 0) != 0;
  ValueId x = last ? channels_first(c, c.in(0)) : c.in(0), w = c.in(3);
  ValueId sum = c.b.op("conv", {x, w, ValueId{}, quant_parameter(c, c.in(2)), quant_parameter(c, c.in(5))},
                       conv_attrs(c, x, w));
  if (c.has(8)) sum = c.b.add(sum, per_channel(c, c.in(8), c.b.rank(sum)));
  ValueId y = requantized(c, sum, c.in(1), c.in(4), c.in(6), c.in(7), 1);
  c.out(0, last ? channels_last(c, y) : y);
}

// a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero
void qlinear_matmul(NodeContext& c) {
  ValueId a = c.in(0), b = c.in(3), y_zero = c.in(7);
  ValueId a_scale = quant_parameter(c, c.in(1)), b_scale = quant_parameter(c, c.in(4));
  if (is_float(c.b.dtype(a))) {  // 8-bit floats have no integer form
    ValueId y = c.b.matmul(dequantized(c, a, a_scale, c.in(2)), dequantized(c, b, b_scale, c.in(5)));
    return c.out(0, quantized(c, y, c.in(6), y_zero, c.b.dtype(y_zero)));
  }
  auto as_row = [&](ValueId v) { return c.b.rank(v) == 1 ? c.b.unsqueeze(v, {1}) : v; };
  ValueId sum = c.b.op("matmul", {a, b, as_row(quant_parameter(c, c.in(2))), quant_parameter(c, c.in(5))});
  if (c.b.rank(a_scale) == 0 && c.b.rank(b_scale) <= 1)
    return c.out(0, requantized(c, sum, a_scale, b_scale, c.in(6), y_zero, -1));
  ValueId scale = c.b.mul(c.b.cast(as_row(a_scale), DType::f32), c.b.cast(b_scale, DType::f32));
  ValueId real = c.b.mul(c.b.cast(sum, DType::f32), scale);
  c.out(0, quantized(c, real, c.b.cast(c.in(6), DType::f32), y_zero, c.b.dtype(y_zero)));
}

}  // namespace

void add_quantize(ImportTable& table) {
  for (std::string_view domain : {std::string_view(""), kMsDomain}) {
    table.add(domain, "QuantizeLinear", quantize_linear);
    table.add(domain, "DequantizeLinear", dequantize_linear);
  }
  table.add("DynamicQuantizeLinear", dynamic_quantize);
  table.add("QLinearConv", qlinear_conv);
  table.add(kMsDomain, "QLinearConv", qlinear_conv);
  table.add("QLinearMatMul", qlinear_matmul);
}

}  // namespace pelton::onnx
