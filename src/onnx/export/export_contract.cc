// SPDX-License-Identifier: Apache-2.0
// Products, convolutions, pooling, quantisation, transforms.
#include <utility>

#include "ir/op.h"
#include "onnx/export/export_context.h"

namespace pelton::onnx {
namespace {

// Swaps the last two axes.
Name transposed(ExportContext& c, size_t i) {
  int64_t rank = c.rank(i);
  if (rank < 2) return c.in(i);
  ir::Ints perm;
  for (int64_t d = 0; d < rank; ++d) perm.push_back(d);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return c.w.op("Transpose", {c.in(i)}, {attr("perm", perm)});
}

void matmul(ExportContext& c) {
  Name a = c.node.get_bool("transpose_a") ? transposed(c, 0) : c.in(0);
  Name b = c.node.get_bool("transpose_b") ? transposed(c, 1) : c.in(1);
  DType t = c.dtype(0);
  if (is_float(t)) {
    c.results = {c.w.op("MatMul", {a, b})};
  } else if (bits(t) == 8) {
    auto zero = [&](size_t i) {  // one entry a row is [.., 1] in the IR and [..] in ONNX
      Name z = c.in(i);
      if (c.has(i) && c.rank(i) == 2 && c.type(i).shape[1] == Dim(1)) z = c.reshape(z, {c.type(i).shape[0]});
      return z;
    };
    c.results = {c.w.op("MatMulInteger", {a, b, zero(2), zero(3)})};
  } else {
    DType own = t == DType::u32 || t == DType::i64 || t == DType::u64 ? t : DType::i32;
    Name y = c.w.op("MatMul", {own == t ? a : c.cast(a, own), own == t ? b : c.cast(b, own)});
    c.results = {own == c.out_type().dtype ? y : c.cast(y, c.out_type().dtype)};
  }
}
void einsum(ExportContext& c) {
  c.results = {c.w.op("Einsum", c.all_inputs(), {attr("equation", c.node.get_text("equation"))})};
}
void det(ExportContext& c) {
  c.results = {c.w.op("Det", {c.in(0)})};
}

std::vector<OnnxAttr> window_attrs(ExportContext& c) {
  auto pads = c.fixed(c.node.get_dims("low"), "a pad"), high = c.fixed(c.node.get_dims("high"), "a pad");
  pads.insert(pads.end(), high.begin(), high.end());
  std::vector<OnnxAttr> attrs;
  if (!pads.empty()) attrs.push_back(attr("pads", pads));
  if (!c.node.get_ints("strides").empty()) attrs.push_back(attr("strides", c.node.get_ints("strides")));
  return attrs;
}
std::vector<OnnxAttr> conv_attrs(ExportContext& c) {
  auto attrs = window_attrs(c);
  if (!c.node.get_ints("dilations").empty()) attrs.push_back(attr("dilations", c.node.get_ints("dilations")));
  attrs.push_back(attr("group", c.node.get_int("groups")));
  return attrs;
}
void conv(ExportContext& c) {
  if (is_float(c.dtype(0))) {
    c.results = {c.w.op("Conv", {c.in(0), c.in(1), c.in(2)}, conv_attrs(c))};
    return;
  }
  Name y = c.w.op("ConvInteger", {c.in(0), c.in(1), c.in(3), c.in(4)}, conv_attrs(c));
  if (c.has(2)) {
    Shape channels(static_cast<size_t>(c.rank(0)), Dim(1));
    channels[1] = c.type(2).shape[0];
    y = c.w.op("Add", {y, c.reshape(c.in(2), channels)});
  }
  c.results = {y};
}
// Pads below zero add a border that no input reaches: ONNX takes it as a Pad of the result, before the bias.
void conv_transpose(ExportContext& c) {
  auto low = c.fixed(c.node.get_dims("low"), "a pad"), high = c.fixed(c.node.get_dims("high"), "a pad");
  ir::Ints pads = low;
  pads.insert(pads.end(), high.begin(), high.end());
  ir::Ints border(2 * low.size() + 4, 0);
  bool grows = false;
  for (size_t i = 0; i < pads.size(); ++i) {
    size_t at = i < low.size() ? i + 2 : i + 4;
    if (pads[i] < 0) grows = true, border[at] = -std::exchange(pads[i], 0);
  }
  std::vector<OnnxAttr> attrs{attr("group", c.node.get_int("groups"))};
  auto list = [&](std::string_view name, const ir::Ints& v) {
    if (!v.empty()) attrs.push_back(attr(name, v));
  };
  list("pads", pads);
  list("strides", c.node.get_ints("strides"));
  list("dilations", c.node.get_ints("dilations"));
  list("output_padding", c.node.get_ints("output_padding"));
  if (!grows) {
    c.results = {c.w.op("ConvTranspose", c.all_inputs(), attrs)};
    return;
  }
  Name y = c.w.op("Pad", {c.w.op("ConvTranspose", {c.in(0), c.in(1)}, attrs), c.w.ints(border)});
  if (c.has(2)) {
    Shape channels(static_cast<size_t>(c.rank(0)), Dim(1));
    channels[1] = c.type(2).shape[0];
    y = c.w.op("Add", {y, c.reshape(c.in(2), channels)});
  }
  c.results = {y};
}
void deform_conv(ExportContext& c) {
  auto attrs = conv_attrs(c);
  attrs.push_back(attr("offset_group", c.node.get_int("offset_groups")));
  c.results = {c.w.op("DeformConv", c.all_inputs(), attrs)};
}

void pool(ExportContext& c) {
  std::string_view op = c.node.op->name;
  auto attrs = window_attrs(c);
  attrs.push_back(attr("kernel_shape", c.node.get_ints("kernel")));
  attrs.push_back(attr("ceil_mode", c.node.get_bool("ceil")));
  if (!c.node.get_ints("dilations").empty()) attrs.push_back(attr("dilations", c.node.get_ints("dilations")));
  if (op == "max_pool") {
    attrs.push_back(attr("storage_order", !c.node.get_bool("row_major")));
    c.results = c.w.ops("MaxPool", {c.in(0)}, attrs, c.node.outputs.size());
  } else if (op == "avg_pool") {
    attrs.push_back(attr("count_include_pad", c.node.get_bool("count_padding")));
    c.results = {c.w.op("AveragePool", {c.in(0)}, attrs)};
  } else {
    attrs.push_back(attr("p", c.node.get_int("p")));
    c.results = {c.w.op("LpPool", {c.in(0)}, attrs)};
  }
}
void max_unpool(ExportContext& c) {
  auto attrs = window_attrs(c);
  attrs.push_back(attr("kernel_shape", c.node.get_ints("kernel")));
  c.results = {c.w.op("MaxUnpool", c.all_inputs(), attrs)};
}
void nms(ExportContext& c) {
  std::vector<Name> inputs = c.all_inputs();
  for (size_t i = 2; i < inputs.size(); ++i)
    if (!inputs[i].empty()) inputs[i] = c.reshape(inputs[i], {1});
  c.results = {
      c.w.op("NonMaxSuppression", inputs, {attr("center_point_box", c.node.get_bool("center_box"))})};
}

void roi_align(ExportContext& c) {
  c.results = {
      c.w.op("RoiAlign", c.all_inputs(),
             {attr("output_height", c.node.get_int("height")), attr("output_width", c.node.get_int("width")),
              attr("sampling_ratio", c.node.get_int("sampling")),
              attr("spatial_scale", c.node.get_real("scale")), attr("mode", c.node.get_text("mode")),
              attr("coordinate_transformation_mode",
                   c.node.get_bool("half_pixel") ? "half_pixel" : "output_half_pixel")})};
}
void max_roi_pool(ExportContext& c) {
  c.results = {c.w.op("MaxRoiPool", c.all_inputs(),
                      {attr("pooled_shape", ir::Ints{c.node.get_int("height"), c.node.get_int("width")}),
                       attr("spatial_scale", c.node.get_real("scale"))})};
}
void col2im(ExportContext& c) {
  auto attrs = window_attrs(c);
  if (!c.node.get_ints("dilations").empty()) attrs.push_back(attr("dilations", c.node.get_ints("dilations")));
  c.results = {c.w.op("Col2Im", c.all_inputs(), attrs)};
}

std::vector<OnnxAttr> quant_attrs(ExportContext& c) {
  std::vector<OnnxAttr> attrs{attr("axis", c.node.get_int("axis"))};
  if (int64_t block = c.node.get_int("block")) attrs.push_back(attr("block_size", block));
  return attrs;
}
// Without a zero point nothing else says it.
void add_output_type(ExportContext& c, std::vector<OnnxAttr>& attrs) {
  if (c.has(2)) return;
  c.w.need_opset(21);
  attrs.push_back(attr("output_dtype", c.node.get_dtype("to")));
}
void quantize(ExportContext& c) {
  auto attrs = quant_attrs(c);
  add_output_type(c, attrs);
  if (!c.node.get_bool("saturate")) attrs.push_back(attr("saturate", false));
  c.results = {c.w.op("QuantizeLinear", c.all_inputs(), attrs)};
}
void dequantize(ExportContext& c) {
  DType to = c.node.get_dtype("to"), scale = c.dtype(1);
  Name y = c.w.op("DequantizeLinear", c.all_inputs(), quant_attrs(c));
  c.results = {to == scale ? y : c.cast(y, to)};
}
void dynamic_quantize(ExportContext& c) {
  c.results = c.w.ops("DynamicQuantizeLinear", {c.in(0)}, {}, 3);
}
void requantize(ExportContext& c) {
  Name scale = c.in(1);
  if (c.rank(1) == 1) {
    Shape line(static_cast<size_t>(c.rank(0)), Dim(1));
    line[static_cast<size_t>(c.node.get_int("axis"))] = c.type(1).shape[0];
    scale = c.reshape(scale, line);
  }
  Name real = c.w.op("Mul", {c.cast(c.in(0), DType::f32), scale});
  std::vector<OnnxAttr> attrs;
  add_output_type(c, attrs);
  c.results = {c.w.op("QuantizeLinear", {real, c.w.scalar(DType::f32, 1), c.in(2)}, attrs)};
}

void fft(ExportContext& c) {
  c.results = {
      c.w.op("DFT", {c.in(0), c.in(1), c.w.integer(c.node.get_int("axis"))},
             {attr("inverse", c.node.get_bool("inverse")), attr("onesided", c.node.get_bool("onesided"))})};
}

}  // namespace

void export_contract(ExportTable& table) {
  table.add("matmul", matmul);
  table.add("einsum", einsum);
  table.add("det", det);
  table.add("conv", conv);
  table.add("conv_transpose", conv_transpose);
  table.add("deform_conv", deform_conv);
  for (std::string_view op : {"max_pool", "avg_pool", "lp_pool"}) table.add(op, pool);
  table.add("max_unpool", max_unpool);
  table.add("nms", nms);
  table.add("roi_align", roi_align);
  table.add("max_roi_pool", max_roi_pool);
  table.add("col2im", col2im);
  table.add("quantize", quantize);
  table.add("dequantize", dequantize);
  table.add("dynamic_quantize", dynamic_quantize);
  table.add("requantize", requantize);
  table.add("fft", fft);
}

}  // namespace pelton::onnx
