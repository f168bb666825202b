// SPDX-License-Identifier: Apache-2.0
// Activations and softmax: composites of the IR where one exists.
#include "onnx/import/helpers.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

void with_alpha(NodeContext& c, std::string_view op, double otherwise) {
  c.out(0, c.b.op(op, {c.in(0)}, {{"alpha", c.get_real("alpha", otherwise)}}));
}
void leaky_relu(NodeContext& c) {
  with_alpha(c, "leaky_relu", static_cast<double>(0.01f));
}
void elu(NodeContext& c) {
  with_alpha(c, "elu", 1);
}
void celu(NodeContext& c) {
  with_alpha(c, "celu", 1);
}

void selu(NodeContext& c) {
  bool first = c.opset < 6;  // version 1 gave fewer digits
  c.out(0, c.b.op("selu", {c.in(0)},
                  {{"alpha",
                    c.get_real("alpha", static_cast<double>(first ? 1.6732f : 1.67326319217681884765625f))},
                   {"gamma", c.get_real("gamma", static_cast<double>(first ? 1.0507f
                                                                           : 1.05070102214813232421875f))}}));
}
void hard_sigmoid(NodeContext& c) {
  c.out(0, c.b.op("hard_sigmoid", {c.in(0)},
                  {{"alpha", c.get_real("alpha", static_cast<double>(0.2f))},
                   {"beta", c.get_real("beta", 0.5)}}));
}
void hard_swish(NodeContext& c) {
  c.out(0, c.b.op("hard_swish", {c.in(0)}));
}
void mish(NodeContext& c) {
  c.out(0, c.b.op("mish", {c.in(0)}));
}
void softsign(NodeContext& c) {
  c.out(0, c.b.op("softsign", {c.in(0)}));
}

void gelu(NodeContext& c) {
  std::string kind = c.get_text("approximate", "none");
  if (kind != "none" && kind != "tanh")
    c.refuse(ErrorCode::bad_format, cat("approximate \"", kind, "\" is not known"));
  c.out(0, c.b.op("gelu", {c.in(0)}, {{"tanh", kind == "tanh"}}));
}

ValueId swish_of(NodeContext& c, ValueId x) {
  double alpha = c.get_real("alpha", 1);
  if (alpha == 1) return c.b.op("silu", {x});
  return c.b.mul(x, c.b.op("sigmoid", {c.b.mul(x, c.b.like(x, alpha))}));
}
void swish(NodeContext& c) {
  c.out(0, swish_of(c, c.in(0)));
}
void swiglu(NodeContext& c) {
  c.out(0, c.b.mul(swish_of(c, c.in(0)), c.in(1)));
}

void prelu(NodeContext& c) {
  ValueId x = c.in(0), slope = c.in(1);
  // Below operator set 7 a slope of rank 1 belongs to the channels.
  if (c.opset < 7 && c.b.rank(slope) == 1 && c.b.rank(x) > 2) slope = per_channel(c, slope, c.b.rank(x));
  c.out(0, c.b.op("prelu", {x, slope}));
}

void thresholded_relu(NodeContext& c) {
  ValueId x = c.in(0);
  c.out(0, c.b.select(c.b.op("gt", {x, c.b.like(x, c.get_real("alpha", 1))}), x, c.b.like(x, 0)));
}

void shrink(NodeContext& c) {
  ValueId x = c.in(0);
  double bias = c.get_real("bias", 0), lambd = c.get_real("lambd", 0.5);
  ValueId below = c.b.op("lt", {x, c.b.like(x, -lambd)}), above = c.b.op("gt", {x, c.b.like(x, lambd)});
  ValueId inner = c.b.select(above, c.b.sub(x, c.b.like(x, bias)), c.b.like(x, 0));
  c.out(0, c.b.select(below, c.b.add(x, c.b.like(x, bias)), inner));
}

// Below operator set 13 these ops see the tensor as a matrix, split at `axis`.
template <class F>
ValueId along_axis(NodeContext& c, F&& f) {
  ValueId x = c.in(0);
  int64_t rank = c.b.rank(x), given = c.get_int("axis", c.opset < 13 ? 1 : -1);
  // The default of 1 is the end of a vector: one row for each element.
  int64_t axis = c.opset < 13 && rank == 1 && given == 1 ? 1 : c.axis(given, rank);
  if (c.opset >= 13 || axis == rank - 1) return f(x, axis);
  const Shape shape = c.b.shape(x);
  return c.b.reshape(f(flatten_at(c, x, axis), 1), shape);
}
void softmax(NodeContext& c) {
  c.out(0, along_axis(c, [&](ValueId x, int64_t axis) { return c.b.op("softmax", {x}, {{"axis", axis}}); }));
}
void log_softmax(NodeContext& c) {
  c.out(0, along_axis(c, [&](ValueId x, int64_t axis) {
          return c.b.op("log_softmax", {x}, {{"axis", axis}});
        }));
}
void hardmax(NodeContext& c) {
  c.out(0, along_axis(c, [&](ValueId x, int64_t axis) {
          ValueId best = c.b.op("arg_max", {x}, {{"axis", axis}, {"keep_dims", true}});
          Shape line(static_cast<size_t>(c.b.rank(x)), Dim(1));
          line[static_cast<size_t>(axis)] = c.b.shape(x)[static_cast<size_t>(axis)];
          ValueId index = c.b.op("iota", {}, {{"dims", line}, {"axis", axis}, {"dtype", DType::i64}});
          return c.b.cast(c.b.op("eq", {index, best}), c.b.dtype(x));
        }));
}

// Inference passes the data through; a training model that asks for it drops.
void dropout(NodeContext& c) {
  ValueId x = c.in(0);
  bool training = false;  // is_test of old versions says nothing about exported models
  if (c.opset >= 12 && c.has(2)) {
    training = c.need_value(c.in(2), "training_mode").get_double(0) != 0;
  }
  if (training) {
    ValueId ratio = c.has(1) ? to_scalar(c, c.in(1)) : c.b.scalar(DType::f32, 0.5);
    auto y = c.b.ops("dropout", {x, c.b.cast(ratio, DType::f32)}, {{"seed", c.get_int("seed", 0)}}, 2);
    c.out(0, y[0]);
    return c.out(1, y[1]);
  }
  c.out(0, x);
  if (c.wants(1)) {
    ValueId mask = filled(c, c.opset < 10 ? c.b.dtype(x) : DType::boolean, c.b.shape(x), 1);
    c.out(1, mask);
  }
}

}  // namespace

void add_activation(ImportTable& table) {
  table.add("LeakyRelu", leaky_relu);
  table.add("Elu", elu);
  table.add("Celu", celu);
  table.add("Selu", selu);
  table.add("HardSigmoid", hard_sigmoid);
  table.add("HardSwish", hard_swish);
  table.add("Mish", mish);
  table.add("Softsign", softsign);
  table.add("Gelu", gelu);
  table.add("Swish", swish);
  table.add("SwiGLU", swiglu);
  table.add("PRelu", prelu);
  table.add("ThresholdedRelu", thresholded_relu);
  table.add("Shrink", shrink);
  table.add("Softmax", softmax);
  table.add("LogSoftmax", log_softmax);
  table.add("Hardmax", hardmax);
  table.add("Dropout", dropout);
}

}  // namespace pelton::onnx
