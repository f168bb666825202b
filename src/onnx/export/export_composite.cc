// SPDX-License-Identifier: Apache-2.0
// Composites that ONNX has as ops; the others are decomposed.
#include <cmath>

#include "ir/op.h"
#include "onnx/export/export_context.h"

namespace pelton::onnx {
namespace {

OnnxAttr axis_of(ExportContext& c) {
  return attr("axis", c.node.get_int("axis"));
}
OnnxAttr eps_of(ExportContext& c) {
  return attr("epsilon", c.node.get_real("eps"));
}
OnnxAttr alpha_of(ExportContext& c) {
  return attr("alpha", c.node.get_real("alpha"));
}

void softmax(ExportContext& c) {
  c.results = {c.w.op("Softmax", {c.in(0)}, {axis_of(c)})};
}
void log_softmax(ExportContext& c) {
  c.results = {c.w.op("LogSoftmax", {c.in(0)}, {axis_of(c)})};
}

// ONNX wants a scale; one of ones serves where the IR has none.
Name scale_or_ones(ExportContext& c) {
  if (c.has(1)) return c.in(1);
  const Shape& s = c.type(0).shape;
  int64_t axis = c.node.get_int("axis"), rank = c.rank(0);
  if (axis < 0) axis += rank;
  return c.w.op("Expand", {c.w.scalar(c.dtype(0), 1), c.sizes(Shape(s.begin() + axis, s.end()))});
}
void layer_norm(ExportContext& c) {
  c.results = c.w.ops("LayerNormalization", {c.in(0), scale_or_ones(c), c.in(2)}, {axis_of(c), eps_of(c)},
                      c.node.outputs.size());
}
void batch_norm(ExportContext& c) {
  c.results = {c.w.op("BatchNormalization", c.all_inputs(), {eps_of(c)})};
}
void gelu(ExportContext& c) {
  c.results = {c.w.op("Gelu", {c.in(0)}, {attr("approximate", c.node.get_bool("tanh") ? "tanh" : "none")})};
}
void silu(ExportContext& c) {
  c.results = {c.w.op("Mul", {c.in(0), c.w.op("Sigmoid", {c.in(0)})})};
}
void hard_sigmoid(ExportContext& c) {
  c.results = {c.w.op("HardSigmoid", {c.in(0)}, {alpha_of(c), attr("beta", c.node.get_real("beta"))})};
}
void hard_swish(ExportContext& c) {
  c.results = {c.w.op("HardSwish", {c.in(0)})};
}
void leaky_relu(ExportContext& c) {
  c.results = {c.w.op("LeakyRelu", {c.in(0)}, {alpha_of(c)})};
}
void elu(ExportContext& c) {
  c.results = {c.w.op("Elu", {c.in(0)}, {alpha_of(c)})};
}
void selu(ExportContext& c) {
  c.results = {c.w.op("Selu", {c.in(0)}, {alpha_of(c), attr("gamma", c.node.get_real("gamma"))})};
}
void mish(ExportContext& c) {
  c.results = {c.w.op("Mish", {c.in(0)})};
}
void softsign(ExportContext& c) {
  c.results = {c.w.op("Softsign", {c.in(0)})};
}
void prelu(ExportContext& c) {
  c.results = {c.w.op("PRelu", c.all_inputs())};
}
void clamp(ExportContext& c) {
  auto bound = [&](size_t i) { return c.has(i) && c.rank(i) ? c.reshape(c.in(i), {}) : c.in(i); };
  c.results = {c.w.op("Clip", {c.in(0), bound(1), bound(2)})};
}
void lrn(ExportContext& c) {
  c.results = {c.w.op("LRN", {c.in(0)},
                      {attr("size", c.node.get_int("size")), alpha_of(c),
                       attr("beta", c.node.get_real("beta")), attr("bias", c.node.get_real("bias"))})};
}
void lp_norm(ExportContext& c) {
  c.results = {c.w.op("LpNormalization", {c.in(0)}, {axis_of(c), attr("p", c.node.get_int("p"))})};
}

// ONNX has the op with the same mask, scale and soft cap; its causal form counts from the first key.
void attention(ExportContext& c) {
  bool causal = c.node.get_bool("causal");
  const Shape &q = c.type(0).shape, &k = c.type(1).shape;
  if (c.node.outputs.size() > 1) c.refuse("attention with its log-sum-exp");
  if (causal && q[2] != k[2]) c.refuse("causal attention over more keys than queries");
  std::vector<OnnxAttr> attrs{attr("is_causal", causal)};
  if (double scale = c.node.get_real("scale"); scale != 0) attrs.push_back(attr("scale", scale));
  if (double cap = c.node.get_real("softcap"); cap != 0) attrs.push_back(attr("softcap", cap));
  c.w.need_opset(23);
  c.results = {c.w.op("Attention", c.all_inputs(), attrs)};
}

void recurrent(ExportContext& c) {
  std::string_view op = c.node.op->name;
  std::vector<OnnxAttr> attrs{attr("hidden_size", c.node.get_int("hidden")),
                              attr("direction", c.node.get_text("direction"))};
  if (c.node.has_attr("activations")) attrs.push_back(attr("activations", c.node.get_strings("activations")));
  if (c.node.has_attr("alpha")) attrs.push_back(attr("activation_alpha", c.node.get_floats("alpha")));
  if (c.node.has_attr("beta")) attrs.push_back(attr("activation_beta", c.node.get_floats("beta")));
  if (c.node.has_attr("clip")) attrs.push_back(attr("clip", c.node.get_real("clip")));
  if (c.node.has_attr("input_forget")) attrs.push_back(attr("input_forget", c.node.get_bool("input_forget")));
  if (c.node.has_attr("linear_before_reset"))
    attrs.push_back(attr("linear_before_reset", c.node.get_bool("linear_before_reset")));
  c.results = c.w.ops(op == "lstm"  ? "LSTM"
                      : op == "gru" ? "GRU"
                                    : "RNN",
                      c.all_inputs(), attrs, c.node.outputs.size());
}

void resample(ExportContext& c) {
  const ir::Ints& axes = c.node.get_ints("axes");
  const Shape& dims = c.node.get_dims("dims");
  if (c.node.get_text("coordinates") == "half_pixel_symmetric") c.w.need_opset(19);
  Name scales, sizes;
  const ir::Floats& f = c.node.get_floats("scales");
  // Scales say nothing of a size that was rounded to fit.
  bool exact = !f.empty();
  for (size_t i = 0; i < f.size(); ++i) {
    const Dim &from = c.type(0).shape[static_cast<size_t>(axes[i])], &to = dims[static_cast<size_t>(axes[i])];
    if (from.is_const() && to.is_const())
      exact =
          exact && std::floor(static_cast<double>(from.value()) * f[i]) == static_cast<double>(to.value());
  }
  if (exact) {
    scales = c.w.constant(from_doubles(DType::f32, {static_cast<int64_t>(f.size())}, f));
  } else {
    Shape wanted;
    for (int64_t a : axes) wanted.push_back(dims[static_cast<size_t>(a)]);
    sizes = c.sizes(wanted);
  }
  c.results = {c.w.op(
      "Resize", {c.in(0), c.in(1), scales, sizes},
      {attr("axes", axes), attr("mode", c.node.get_text("mode")),
       attr("coordinate_transformation_mode", c.node.get_text("coordinates")),
       attr("nearest_mode", c.node.get_text("nearest")), attr("cubic_coeff_a", c.node.get_real("cubic")),
       attr("exclude_outside", c.node.get_bool("exclude_outside")),
       attr("antialias", c.node.get_bool("antialias")),
       attr("extrapolation_value", c.node.get_real("extrapolation"))})};
}
void grid_sample(ExportContext& c) {
  c.results = {
      c.w.op("GridSample", c.all_inputs(),
             {attr("mode", c.node.get_text("mode")), attr("padding_mode", c.node.get_text("padding")),
              attr("align_corners", c.node.get_bool("align_corners"))})};
}
void affine_grid(ExportContext& c) {
  c.results = {c.w.op("AffineGrid", {c.in(0), c.sizes(c.node.get_dims("dims"))},
                      {attr("align_corners", c.node.get_bool("align_corners"))})};
}

}  // namespace

void export_composite(ExportTable& table) {
  table.add("softmax", softmax);
  table.add("log_softmax", log_softmax);
  table.add("layer_norm", layer_norm);
  table.add("batch_norm", batch_norm);
  table.add("gelu", gelu);
  table.add("silu", silu);
  table.add("hard_sigmoid", hard_sigmoid);
  table.add("hard_swish", hard_swish);
  table.add("leaky_relu", leaky_relu);
  table.add("elu", elu);
  table.add("selu", selu);
  table.add("mish", mish);
  table.add("softsign", softsign);
  table.add("prelu", prelu);
  table.add("clamp", clamp);
  table.add("lrn", lrn);
  table.add("lp_norm", lp_norm);
  table.add("attention", attention);
  for (std::string_view op : {"lstm", "gru", "rnn"}) table.add(op, recurrent);
  table.add("resample", resample);
  table.add("grid_sample", grid_sample);
  table.add("affine_grid", affine_grid);
}

}  // namespace pelton::onnx
