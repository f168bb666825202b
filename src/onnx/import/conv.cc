// SPDX-License-Identifier: Apache-2.0
// Convolutions. x[N,C,S...], w[O,C/groups,K...], bias[O].
#include "onnx/import/conv.h"

#include "onnx/import/helpers.h"
#include "onnx/import/shape_math.h"
#include "onnx/import/table.h"
#include "onnx/import/windows.h"

namespace pelton::onnx {

Attrs conv_attrs(NodeContext& c, ValueId x, ValueId w) {
  Windows k = windows_of(c, x, kernel_of(c, w));
  return {{"strides", k.strides},
          {"dilations", k.dilations},
          {"low", k.low},
          {"high", k.high},
          {"groups", c.get_int("group", 1)}};
}

namespace {

void conv(NodeContext& c) {
  ValueId x = c.in(0), w = c.in(1);
  std::vector<ValueId> inputs{x, w};
  if (c.has(2)) inputs.push_back(c.in(2));
  c.out(0, c.b.op("conv", inputs, conv_attrs(c, x, w)));
}

void conv_integer(NodeContext& c) {
  ValueId x = c.in(0), w = c.in(1);
  auto zero = [&](size_t i) { return c.has(i) ? c.in(i) : ValueId{}; };
  c.out(0, c.b.op("conv", {x, w, ValueId{}, zero(2), zero(3)}, conv_attrs(c, x, w)));
}

// Output size O of an axis: (S - 1) * stride + output_padding + (K - 1) * dilation + 1 - low - high.
void conv_transpose(NodeContext& c) {
  ValueId x = c.in(0), w = c.in(1);
  Ints kernel = kernel_of(c, w);
  size_t n = kernel.size();
  std::string mode = c.get_text("auto_pad", "NOTSET");
  Ints extra = c.get_ints("output_padding"), wanted = c.get_ints("output_shape");
  if (extra.empty()) extra.assign(n, 0);
  if (extra.size() != n)
    c.refuse(ErrorCode::bad_shape, cat("output_padding ", extra, " does not fit ", n, " dimensions"));
  if (wanted.size() == n + 2) wanted.erase(wanted.begin(), wanted.begin() + 2);
  if (!wanted.empty() && wanted.size() != n)
    c.refuse(ErrorCode::bad_shape, cat("output_shape ", wanted, " does not fit ", n, " dimensions"));
  Windows k = windows_of(c, x, kernel);
  bool same = mode.starts_with("SAME");
  for (size_t i = 0; i < n && (same || !wanted.empty()); ++i) {
    const Dim size = c.b.shape(x)[i + 2];
    Dim full = (size - 1) * k.strides[i] + extra[i] + ((kernel[i] - 1) * k.dilations[i] + 1);
    Dim total = full - (wanted.empty() ? size * k.strides[i] : Dim(wanted[i]));
    Dim half = Dim::floor_div(total, 2);
    // SAME_UPPER puts the odd element at the end; without auto_pad ONNX puts it at the start.
    k.low[i] = mode == "SAME_UPPER" ? half : total - half;
    k.high[i] = total - k.low[i];
  }
  std::vector<ValueId> inputs{x, w};
  if (c.has(2)) inputs.push_back(c.in(2));
  c.out(0, c.b.op("conv_transpose", inputs,
                  {{"strides", k.strides},
                   {"dilations", k.dilations},
                   {"low", k.low},
                   {"high", k.high},
                   {"output_padding", extra},
                   {"groups", c.get_int("group", 1)}}));
}

void deform_conv(NodeContext& c) {
  ValueId x = c.in(0), w = c.in(1);
  Attrs attrs = conv_attrs(c, x, w);
  attrs["offset_groups"] = c.get_int("offset_group", 1);
  std::vector<ValueId> inputs{x, w, c.in(2), c.opt(3), c.opt(4)};
  while (!inputs.back()) inputs.pop_back();
  c.out(0, c.b.op("deform_conv", inputs, std::move(attrs)));
}

void col2im(NodeContext& c) {
  Ints block = c.need_ints(2, "block_shape");
  size_t n = block.size();
  auto list = [&](std::string_view name) {
    Ints v = c.get_ints(name);
    if (v.empty()) v.assign(n, 1);
    return v;
  };
  Ints pads = c.get_ints("pads");
  pads.resize(2 * n, 0);
  Shape low, high;
  for (size_t i = 0; i < n; ++i) {
    low.emplace_back(pads[i]);
    high.emplace_back(pads[n + i]);
  }
  c.out(
      0,
      c.b.op("col2im", {c.in(0), c.b.cast(c.in(1), DType::i64), c.b.cast(c.in(2), DType::i64)},
             {{"strides", list("strides")}, {"dilations", list("dilations")}, {"low", low}, {"high", high}}));
}

// Depthwise over the last axis with the k - 1 columns before it carried from call to call.
void causal_conv(NodeContext& c) {
  ValueId x = c.in(0), w = c.in(1);
  const Shape shape = c.b.shape(x);
  int64_t channels = c.need_const(shape.at(1), "the number of channels");
  int64_t carry = c.need_const(c.b.shape(w).at(2), "the filter size") - 1;
  const Shape carried{shape.at(0), channels, carry};
  ValueId past = c.has(3) ? c.in(3) : zeros(c, c.b.dtype(x), carried);
  ValueId all = concat(c, {past, x}, 2);
  std::vector<ValueId> inputs{all, w};
  if (c.has(2)) inputs.push_back(c.in(2));
  ValueId y = c.b.op("conv", inputs,
                     {{"strides", Ints{1}},
                      {"dilations", Ints{1}},
                      {"low", Shape{0}},
                      {"high", Shape{0}},
                      {"groups", channels}});
  std::string activation = c.get_text("activation", "none");
  if (activation == "silu" || activation == "swish")
    y = c.b.op("silu", {y});
  else if (activation != "none")
    c.refuse(ErrorCode::bad_format, cat("activation \"", activation, "\" is not known"));
  c.out(0, y);
  if (c.wants(1)) c.out(1, slice_axis(c, all, 2, shape.at(2), carry));
}

}  // namespace

void add_conv(ImportTable& table) {
  table.add("Conv", conv);
  table.add("ConvInteger", conv_integer);
  table.add("ConvTranspose", conv_transpose);
  table.add("DeformConv", deform_conv);
  table.add("Col2Im", col2im);
  table.add("CausalConvWithState", causal_conv);
}

}  // namespace pelton::onnx
