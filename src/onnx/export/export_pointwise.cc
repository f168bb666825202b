// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ir/op.h"
#include "onnx/export/export_context.h"

namespace pelton::onnx {
namespace {

struct Rename {
  std::string_view ir, onnx;
};
constexpr Rename kUnary[] = {
    {"exp", "Exp"},         {"log", "Log"},
    {"sqrt", "Sqrt"},       {"sin", "Sin"},
    {"cos", "Cos"},         {"tan", "Tan"},
    {"asin", "Asin"},       {"acos", "Acos"},
    {"atan", "Atan"},       {"sinh", "Sinh"},
    {"cosh", "Cosh"},       {"tanh", "Tanh"},
    {"asinh", "Asinh"},     {"acosh", "Acosh"},
    {"atanh", "Atanh"},     {"erf", "Erf"},
    {"sigmoid", "Sigmoid"}, {"softplus", "Softplus"},
    {"neg", "Neg"},         {"abs", "Abs"},
    {"sign", "Sign"},       {"reciprocal", "Reciprocal"},
    {"relu", "Relu"},       {"floor", "Floor"},
    {"ceil", "Ceil"},       {"round", "Round"},
    {"is_nan", "IsNaN"},
};
constexpr Rename kBinary[] = {
    {"add", "Add"},    {"sub", "Sub"},           {"mul", "Mul"},      {"div", "Div"}, {"pow", "Pow"},
    {"max", "Max"},    {"min", "Min"},           {"eq", "Equal"},     {"lt", "Less"}, {"le", "LessOrEqual"},
    {"gt", "Greater"}, {"ge", "GreaterOrEqual"}, {"select", "Where"},
};

template <size_t N>
std::string_view renamed(const Rename (&table)[N], std::string_view ir) {
  return std::find_if(table, table + N, [&](const Rename& r) { return r.ir == ir; })->onnx;
}

void unary(ExportContext& c) {
  c.results = {c.w.op(renamed(kUnary, c.node.op->name), {c.in(0)})};
}
void binary(ExportContext& c) {
  c.results = {c.w.op(renamed(kBinary, c.node.op->name), c.all_inputs())};
}

void log1p(ExportContext& c) {
  c.results = {c.w.op("Log", {c.w.op("Add", {c.in(0), c.w.scalar(c.dtype(0), 1)})})};
}
void expm1(ExportContext& c) {
  c.results = {c.w.op("Sub", {c.w.op("Exp", {c.in(0)}), c.w.scalar(c.dtype(0), 1)})};
}
void rsqrt(ExportContext& c) {
  c.results = {c.w.op("Reciprocal", {c.w.op("Sqrt", {c.in(0)})})};
}
void square(ExportContext& c) {
  c.results = {c.w.op("Mul", {c.in(0), c.in(0)})};
}
void trunc(ExportContext& c) {
  c.results = {c.w.op("Mul", {c.w.op("Sign", {c.in(0)}), c.w.op("Floor", {c.w.op("Abs", {c.in(0)})})})};
}
void is_inf_pos(ExportContext& c) {
  c.results = {c.w.op("IsInf", {c.in(0)}, {attr("detect_negative", false)})};
}
void is_inf_neg(ExportContext& c) {
  c.results = {c.w.op("IsInf", {c.in(0)}, {attr("detect_positive", false)})};
}
void ne(ExportContext& c) {
  c.results = {c.w.op("Not", {c.w.op("Equal", c.all_inputs())})};
}
void mod(ExportContext& c) {
  if (!is_float(c.dtype(0))) {
    c.results = {c.w.op("Mod", c.all_inputs())};
    return;
  }
  // Mod takes floats only as fmod before operator set 28: where that has the wrong sign, the divisor is
  // added.
  Name a = c.in(0), b = c.in(1), zero = c.w.scalar(c.dtype(0), 0);
  Name r = c.w.op("Mod", {a, b}, {attr("fmod", true)});
  Name signs = c.w.op("Xor", {c.w.op("Less", {r, zero}), c.w.op("Less", {b, zero})});
  Name wrong = c.w.op("And", {signs, c.w.op("Not", {c.w.op("Equal", {r, zero})})});
  c.results = {c.w.op("Where", {wrong, c.w.op("Add", {r, b}), r})};
}
void rem(ExportContext& c) {
  c.results = {c.w.op("Mod", c.all_inputs(), {attr("fmod", true)})};
}

void logic(ExportContext& c) {
  std::string_view op = c.node.op->name;
  bool boolean = c.dtype(0) == DType::boolean;
  std::string type = op == "and" ? "And" : op == "or" ? "Or" : op == "xor" ? "Xor" : "Not";
  c.results = {c.w.op(boolean ? type : "Bitwise" + type, c.all_inputs())};
}
void shift(ExportContext& c) {
  bool left = c.node.op->name == "shift_left";
  if (is_signed_int(c.dtype(0))) c.w.need_opset(28);
  c.results = {c.w.op("BitShift", c.all_inputs(), {attr("direction", left ? "LEFT" : "RIGHT")})};
}

void cast(ExportContext& c) {
  std::vector<OnnxAttr> attrs{attr("to", c.node.get_dtype("to"))};
  if (!c.node.get_bool("saturate")) {
    c.w.need_opset(19);
    attrs.push_back(attr("saturate", false));
  }
  c.results = {c.w.op("Cast", {c.in(0)}, attrs)};
}
void bitcast(ExportContext& c) {
  c.w.need_opset(26);
  c.results = {c.w.op("BitCast", {c.in(0)}, {attr("to", c.node.get_dtype("to"))})};
}

void reduce(ExportContext& c) {
  std::string_view op = c.node.op->name;
  std::string_view type = op == "reduce_sum"    ? "ReduceSum"
                          : op == "reduce_mean" ? "ReduceMean"
                          : op == "reduce_max"  ? "ReduceMax"
                          : op == "reduce_min"  ? "ReduceMin"
                                                : "ReduceProd";
  Name x = c.in(0);
  bool logical = c.dtype(0) == DType::boolean && type == "ReduceProd";
  if (logical) type = "ReduceMin";
  if (c.dtype(0) == DType::boolean) c.w.need_opset(20);
  c.results = {c.w.op(type, {x, c.w.ints(c.node.get_ints("axes"))},
                      {attr("keepdims", c.node.get_bool("keep_dims")), attr("noop_with_empty_axes", true)})};
}
void arg_reduce(ExportContext& c) {
  c.results = {c.w.op(c.node.op->name == "arg_max" ? "ArgMax" : "ArgMin", {c.in(0)},
                      {attr("axis", c.node.get_int("axis")), attr("keepdims", c.node.get_bool("keep_dims")),
                       attr("select_last_index", c.node.get_bool("last"))})};
}
void cumulative(ExportContext& c) {
  bool sum = c.node.op->name == "cumsum";
  if (!sum) c.w.need_opset(26);
  c.results = {
      c.w.op(sum ? "CumSum" : "CumProd", {c.in(0), c.w.integer(c.node.get_int("axis"))},
             {attr("exclusive", c.node.get_bool("exclusive")), attr("reverse", c.node.get_bool("reverse"))})};
}

}  // namespace

void export_pointwise(ExportTable& table) {
  for (const Rename& r : kUnary) table.add(r.ir, unary);
  for (const Rename& r : kBinary) table.add(r.ir, binary);
  for (std::string_view op : {"and", "or", "xor", "not"}) table.add(op, logic);
  for (std::string_view op : {"shift_left", "shift_right"}) table.add(op, shift);
  for (std::string_view op : {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"})
    table.add(op, reduce);
  for (std::string_view op : {"arg_max", "arg_min"}) table.add(op, arg_reduce);
  for (std::string_view op : {"cumsum", "cumprod"}) table.add(op, cumulative);
  table.add("log1p", log1p);
  table.add("expm1", expm1);
  table.add("rsqrt", rsqrt);
  table.add("square", square);
  table.add("trunc", trunc);
  table.add("is_inf_pos", is_inf_pos);
  table.add("is_inf_neg", is_inf_neg);
  table.add("ne", ne);
  table.add("mod", mod);
  table.add("rem", rem);
  table.add("cast", cast);
  table.add("bitcast", bitcast);
}

}  // namespace pelton::onnx
