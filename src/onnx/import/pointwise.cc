// SPDX-License-Identifier: Apache-2.0
// Arithmetic, comparison, logic, casts.
#include <algorithm>
#include <array>

#include "onnx/import/helpers.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

struct Rename {
  std::string_view onnx, ir;
};
constexpr Rename kUnary[] = {
    {"Abs", "abs"},
    {"Acos", "acos"},
    {"Acosh", "acosh"},
    {"Asin", "asin"},
    {"Asinh", "asinh"},
    {"Atan", "atan"},
    {"Atanh", "atanh"},
    {"BitwiseNot", "not"},
    {"Ceil", "ceil"},
    {"Cos", "cos"},
    {"Cosh", "cosh"},
    {"Erf", "erf"},
    {"Exp", "exp"},
    {"Floor", "floor"},
    {"IsNaN", "is_nan"},
    {"Log", "log"},
    {"Neg", "neg"},
    {"Not", "not"},
    {"Reciprocal", "reciprocal"},
    {"Relu", "relu"},
    {"Round", "round"},
    {"Sigmoid", "sigmoid"},
    {"Sign", "sign"},
    {"Sin", "sin"},
    {"Sinh", "sinh"},
    {"Softplus", "softplus"},
    {"Sqrt", "sqrt"},
    {"Tan", "tan"},
    {"Tanh", "tanh"},
};
constexpr Rename kBinary[] = {
    {"Add", "add"},      {"And", "and"},        {"BitwiseAnd", "and"},
    {"BitwiseOr", "or"}, {"BitwiseXor", "xor"}, {"Div", "div"},
    {"Equal", "eq"},     {"Greater", "gt"},     {"GreaterOrEqual", "ge"},
    {"Less", "lt"},      {"LessOrEqual", "le"}, {"Mul", "mul"},
    {"Or", "or"},        {"Pow", "pow"},        {"Sub", "sub"},
    {"Xor", "xor"},
};
constexpr Rename kVariadic[] = {{"Max", "max"}, {"Min", "min"}, {"Sum", "add"}};

template <size_t N>
std::string_view renamed(const Rename (&table)[N], std::string_view onnx) {
  return std::find_if(table, table + N, [&](const Rename& r) { return r.onnx == onnx; })->ir;
}

void unary(NodeContext& c) {
  c.out(0, c.b.op(renamed(kUnary, c.node.op_type), {c.in(0)}));
}

void binary(NodeContext& c) {
  ValueId a = c.in(0), y = legacy_broadcast(c, a, c.in(1));
  if (c.node.op_type == "Equal" && c.opset < 11 && is_float(c.b.dtype(a)))
    c.refuse(ErrorCode::bad_type,
             cat("compares ", name(c.b.dtype(a)), ", which operator set ", c.opset, " does not allow"),
             "convert the model to operator set 11 or newer");
  c.out(0, c.b.op(renamed(kBinary, c.node.op_type), {a, y}));
}

void variadic(NodeContext& c) {
  ValueId y = c.in(0);
  for (size_t i = 1; i < c.input_count(); ++i) y = c.b.op(renamed(kVariadic, c.node.op_type), {y, c.in(i)});
  c.out(0, y);
}

void mean(NodeContext& c) {
  ValueId y = c.in(0);
  for (size_t i = 1; i < c.input_count(); ++i) y = c.b.add(y, c.in(i));
  c.out(0, c.b.div(y, c.b.like(y, static_cast<double>(c.input_count()))));
}

void mod(NodeContext& c) {
  c.out(0, c.b.op(c.get_int("fmod", 0) ? "rem" : "mod", {c.in(0), c.in(1)}));
}

void bit_shift(NodeContext& c) {
  std::string direction = c.get_text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    c.refuse(ErrorCode::bad_format, cat("direction \"", direction, "\" is neither LEFT nor RIGHT"));
  c.out(0, c.b.op(direction == "LEFT" ? "shift_left" : "shift_right", {c.in(0), c.in(1)}));
}

void where(NodeContext& c) {
  c.out(0, c.b.select(c.in(0), c.in(1), c.in(2)));
}

void is_inf(NodeContext& c) {
  ValueId x = c.in(0);
  bool low = c.get_int("detect_negative", 1) != 0, high = c.get_int("detect_positive", 1) != 0;
  ValueId y;
  if (low) y = c.b.op("is_inf_neg", {x});
  if (high) {
    ValueId up = c.b.op("is_inf_pos", {x});
    y = low ? c.b.op("or", {y, up}) : up;
  }
  if (!y) y = c.b.op("and", {c.b.op("is_inf_pos", {x}), c.b.constant(Tensor::scalar(false))});
  c.out(0, y);
}

void cast_to(NodeContext& c, DType to) {
  ValueId x = c.in(0);
  if (c.b.dtype(x) == to) return c.out(0, x);
  // Real numbers out of range of the short integers wrap, as larger integers do.
  if (is_int(to) && is_sub_byte(to) && is_float(c.b.dtype(x))) x = c.b.cast(x, DType::i32);
  Attrs attrs{{"to", to}};
  if (c.get_int("saturate", 1) == 0) attrs["saturate"] = false;
  if (to == DType::f8e8m0) attrs["round"] = c.get_text("round_mode", "up");
  c.out(0, c.b.op("cast", {x}, std::move(attrs)));
}
void cast(NodeContext& c) {
  if (!c.has_attr("to")) c.refuse(ErrorCode::bad_format, "attribute 'to' is required and absent");
  cast_to(c, c.get_dtype("to", DType::f32));
}
void cast_like(NodeContext& c) {
  cast_to(c, c.b.dtype(c.in(1)));
}
void bit_cast(NodeContext& c) {
  c.out(0, c.b.op("bitcast", {c.in(0)}, {{"to", c.get_dtype("to", DType::f32)}}));
}

void identity(NodeContext& c) {
  c.out(0, c.in(0));
}

void clip(NodeContext& c) {
  ValueId x = c.in(0), low, high;
  if (c.opset < 11) {
    if (c.has_attr("min")) low = c.b.like(x, c.get_real("min", 0));
    if (c.has_attr("max")) high = c.b.like(x, c.get_real("max", 0));
  } else {
    low = c.opt(1);
    high = c.opt(2);
  }
  if (!low && !high) return c.out(0, x);
  auto scalar = [&](ValueId v) { return v && c.b.rank(v) ? c.b.reshape(v, {}) : v; };
  c.out(0, c.b.op("clamp", {x, scalar(low), scalar(high)}));
}

}  // namespace

void add_pointwise(ImportTable& table) {
  for (const Rename& r : kUnary) table.add(r.onnx, unary);
  for (const Rename& r : kBinary) table.add(r.onnx, binary);
  for (const Rename& r : kVariadic) table.add(r.onnx, variadic);
  table.add("Mean", mean);
  table.add("Mod", mod);
  table.add("BitShift", bit_shift);
  table.add("Where", where);
  table.add("IsInf", is_inf);
  table.add("Cast", cast);
  table.add("CastLike", cast_like);
  table.add("BitCast", bit_cast);
  table.add("Identity", identity);
  table.add("Clip", clip);
}

}  // namespace pelton::onnx
