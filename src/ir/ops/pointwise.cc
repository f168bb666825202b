// SPDX-License-Identifier: Apache-2.0
// Pointwise ops: rows, inference, scalar functions. One generic evaluation serves them all.
#include <algorithm>
#include <cmath>

#include "ir/ops/common.h"
#include "ir/ops/pointwise_eval.h"
#include "ir/ops/scalar_math.h"

namespace pelton::ir {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void infer_pointwise(InferContext& c) {
  const OpDef& op = *c.node.op;
  const ScalarDef& s = *op.scalar;
  DType t = c.dtype(0);
  bool accepted = (supports_float(t) && s.real) || (is_signed_int(t) && is_compute(t) && s.sint) ||
                  (is_unsigned_int(t) && is_compute(t) && s.uint) || (t == DType::boolean && s.boolean) ||
                  (t == DType::string && (op.name == "eq" || op.name == "ne"));
  c.require(accepted, ErrorCode::bad_type, "C1", cat("does not take ", name(t), " elements"));
  Shape shape = c.shape(0);
  for (size_t i = 1; i < c.input_count(); ++i) {
    c.require(c.dtype(i) == t, ErrorCode::bad_type, "C2",
              cat("needs operands of one type, not ", name(t), " and ", name(c.dtype(i))));
    shape = c.broadcast(shape, c.shape(i), "C3");
  }
  c.output(0, s.yields_bool ? DType::boolean : t, shape);
  // Small integer arithmetic keeps its symbolic value.
  if (!is_int(t) || s.yields_bool || shape.size() > 1) return;
  auto a = c.contents(0);
  if (!a) return;
  if (c.input_count() == 1) {
    if (op.name != "neg") return;
    for (Dim& d : *a) d = -d;
    return c.output_contents(0, *a);
  }
  auto b = c.contents(1);
  if (c.input_count() != 2 || !b || a->empty() || b->empty()) return;
  size_t n = std::max(a->size(), b->size());
  if ((a->size() != n && a->size() != 1) || (b->size() != n && b->size() != 1)) return;
  Contents out;
  for (size_t i = 0; i < n; ++i) {
    const Dim &x = (*a)[a->size() == 1 ? 0 : i], &y = (*b)[b->size() == 1 ? 0 : i];
    if (op.name == "add")
      out.push_back(x + y);
    else if (op.name == "sub")
      out.push_back(x - y);
    else if (op.name == "mul")
      out.push_back(x * y);
    else if (op.name == "max")
      out.push_back(Dim::max(x, y));
    else if (op.name == "min")
      out.push_back(Dim::min(x, y));
    else if ((op.name == "div" || op.name == "mod" || op.name == "rem") && x.range(c.ranges()).min >= 0 &&
             y.range(c.ranges()).min > 0)
      out.push_back(op.name == "div" ? Dim::floor_div(x, y)
                                     : Dim::mod(x, y));  // truncation is floor when neither is negative
    else if (op.name == "div" && y.is_const() && y.value() > 0 && x.range(c.ranges()).min > -y.value())
      out.push_back(Dim::floor_div(Dim::max(x, 0), y.value()));  // what is above -y is 0
    else
      return;
  }
  c.output_contents(0, out);
}

// Exporters guard sizes as select(size == -1, 1, size): where the comparison is decided, so is the result.
std::optional<Contents> select_contents(const InferContext& c) {
  NodeId test = c.graph[c.node.inputs[0]].producer;
  if (!test || !c.graph[test].is("eq") || !c.has(1) || !c.has(2)) return std::nullopt;
  auto a = known_contents(c.graph, c.graph[test].inputs[0]),
       b = known_contents(c.graph, c.graph[test].inputs[1]);
  auto yes = c.contents(1), no = c.contents(2);
  if (!a || !b || !yes || !no) return std::nullopt;
  size_t n = std::max({a->size(), b->size(), yes->size(), no->size()});
  auto at = [&](const Contents& from, size_t i) { return from.size() == 1 ? from[0] : from.at(i); };
  for (const Contents* part : {&*a, &*b, &*yes, &*no})
    if (part->size() != n && part->size() != 1) return std::nullopt;
  Contents out;
  for (size_t i = 0; i < n; ++i) {
    Tri same = equal(at(*a, i), at(*b, i), c.ranges());
    if (same == Tri::unknown) return std::nullopt;
    out.push_back(at(same == Tri::yes ? *yes : *no, i));
  }
  return out;
}

void infer_select(InferContext& c) {
  c.require(c.dtype(0) == DType::boolean, ErrorCode::bad_type, "C1",
            cat("needs a bool condition, not ", name(c.dtype(0))));
  c.require(c.dtype(1) == c.dtype(2), ErrorCode::bad_type, "C2",
            cat("needs branches of one type, not ", name(c.dtype(1)), " and ", name(c.dtype(2))));
  Shape shape = c.broadcast(c.broadcast(c.shape(0), c.shape(1), "C3"), c.shape(2), "C3");
  c.output(0, c.dtype(1), shape);
  if (shape.size() > 1) return;
  auto chosen = select_contents(c);
  if (chosen) c.output_contents(0, *chosen);
}

void infer_pow(InferContext& c) {
  for (size_t i : {0, 1})
    c.require(supports_number(c.dtype(i)), ErrorCode::bad_type, "C1",
              cat("does not take ", name(c.dtype(i)), " elements"));
  c.output(0, c.dtype(0), c.broadcast(c.shape(0), c.shape(1), "C3"));
}

double pointwise_flops(const Graph&, const Node&, const std::vector<Dims>&, const std::vector<Dims>& out) {
  return static_cast<double>(element_count(out[0]));
}

double nan_max(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? kNan : std::max(a, b);
}
double nan_min(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? kNan : std::min(a, b);
}
double floored_mod(double a, double b) {
  double r = std::fmod(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}
uint64_t u(int64_t v) {
  return static_cast<uint64_t>(v);
}
int64_t s(uint64_t v) {
  return static_cast<int64_t>(v);
}

#define REAL1(expression) .real = [](const double* x) -> double { return expression; }
#define SINT1(expression) .sint = [](const int64_t* x) -> int64_t { return expression; }
#define UINT1(expression) .uint = [](const uint64_t* x) -> uint64_t { return expression; }
#define BOOL1(expression) .boolean = [](const bool* x) -> bool { return expression; }

struct Row {
  std::string_view name;
  int inputs;
  ScalarDef scalar;
};

const Row kRows[] = {
    {"exp", 1, {REAL1(std::exp(x[0])), .code = "exp($0)"}},
    {"log", 1, {REAL1(std::log(x[0])), .code = "log($0)"}},
    {"log1p", 1, {REAL1(std::log1p(x[0])), .code = "log1p($0)"}},
    {"expm1", 1, {REAL1(std::expm1(x[0])), .code = "expm1($0)"}},
    {"sqrt", 1, {REAL1(std::sqrt(x[0])), .code = "sqrt($0)"}},
    {"rsqrt", 1, {REAL1(1 / std::sqrt(x[0])), .code = "rsqrt($0)"}},
    {"sin", 1, {REAL1(std::sin(x[0])), .code = "sin($0)"}},
    {"cos", 1, {REAL1(std::cos(x[0])), .code = "cos($0)"}},
    {"tan", 1, {REAL1(std::tan(x[0])), .code = "tan($0)"}},
    {"asin", 1, {REAL1(std::asin(x[0])), .code = "asin($0)"}},
    {"acos", 1, {REAL1(std::acos(x[0])), .code = "acos($0)"}},
    {"atan", 1, {REAL1(std::atan(x[0])), .code = "atan($0)"}},
    {"sinh", 1, {REAL1(std::sinh(x[0])), .code = "sinh($0)"}},
    {"cosh", 1, {REAL1(std::cosh(x[0])), .code = "cosh($0)"}},
    {"tanh", 1, {REAL1(std::tanh(x[0])), .code = "tanh($0)"}},
    {"asinh", 1, {REAL1(std::asinh(x[0])), .code = "asinh($0)"}},
    {"acosh", 1, {REAL1(std::acosh(x[0])), .code = "acosh($0)"}},
    {"atanh", 1, {REAL1(std::atanh(x[0])), .code = "atanh($0)"}},
    {"erf", 1, {REAL1(std::erf(x[0])), .code = "erf($0)"}},
    {"sigmoid", 1, {REAL1(sigmoid(x[0])), .code = "1 / (1 + exp(-$0))"}},
    {"softplus", 1, {REAL1(softplus(x[0])), .code = "max($0, 0) + log1p(exp(-abs($0)))"}},
    {"neg", 1, {REAL1(-x[0]), SINT1(s(0 - u(x[0]))), UINT1(0 - x[0]), .code = "-$0"}},
    {"abs",
     1,
     {REAL1(std::fabs(x[0])), SINT1(x[0] < 0 ? s(0 - u(x[0])) : x[0]), UINT1(x[0]), .code = "abs($0)"}},
    {"sign",
     1,
     {REAL1(std::isnan(x[0]) ? kNan : (x[0] > 0) - (x[0] < 0)), SINT1((x[0] > 0) - (x[0] < 0)),
      UINT1(x[0] > 0), .code = "sign($0)"}},
    {"reciprocal", 1, {REAL1(1 / x[0]), .code = "1 / $0"}},
    {"square", 1, {REAL1(x[0] * x[0]), SINT1(s(u(x[0]) * u(x[0]))), UINT1(x[0] * x[0]), .code = "$0 * $0"}},
    {"relu",
     1,
     {REAL1(std::isnan(x[0]) ? kNan : std::max(x[0], 0.0)), SINT1(std::max<int64_t>(x[0], 0)), UINT1(x[0]),
      .code = "max($0, 0)"}},
    {"floor", 1, {REAL1(std::floor(x[0])), SINT1(x[0]), UINT1(x[0]), .code = "floor($0)", .int_code = "$0"}},
    {"ceil", 1, {REAL1(std::ceil(x[0])), SINT1(x[0]), UINT1(x[0]), .code = "ceil($0)", .int_code = "$0"}},
    {"round",
     1,
     {REAL1(std::nearbyint(x[0])), SINT1(x[0]), UINT1(x[0]), .code = "rint($0)", .int_code = "$0"}},
    {"trunc", 1, {REAL1(std::trunc(x[0])), SINT1(x[0]), UINT1(x[0]), .code = "trunc($0)", .int_code = "$0"}},
    {"is_nan", 1, {REAL1(std::isnan(x[0])), .yields_bool = true, .code = "$0 != $0"}},
    {"is_inf_pos", 1, {REAL1(std::isinf(x[0]) && x[0] > 0), .yields_bool = true, .code = "$0 == INFINITY"}},
    {"is_inf_neg", 1, {REAL1(std::isinf(x[0]) && x[0] < 0), .yields_bool = true, .code = "$0 == -INFINITY"}},
    {"not", 1, {SINT1(~x[0]), UINT1(~x[0]), BOOL1(!x[0]), .code = "!$0", .int_code = "~$0"}},
    {"add", 2, {REAL1(x[0] + x[1]), SINT1(s(u(x[0]) + u(x[1]))), UINT1(x[0] + x[1]), .code = "$0 + $1"}},
    {"sub", 2, {REAL1(x[0] - x[1]), SINT1(s(u(x[0]) - u(x[1]))), UINT1(x[0] - x[1]), .code = "$0 - $1"}},
    {"mul", 2, {REAL1(x[0] * x[1]), SINT1(s(u(x[0]) * u(x[1]))), UINT1(x[0] * x[1]), .code = "$0 * $1"}},
    {"div",
     2,
     {REAL1(x[0] / x[1]),
      SINT1(x[1] == 0    ? 0
            : x[1] == -1 ? s(0 - u(x[0]))
                         : x[0] / x[1]),
      UINT1(x[1] == 0 ? 0 : x[0] / x[1]), .code = "$0 / $1", .int_code = "idiv($0, $1)"}},
    {"mod",
     2,
     {REAL1(floored_mod(x[0], x[1])),
      SINT1(x[1] == 0 || x[1] == -1
                ? 0
                : (x[0] % x[1] != 0 && ((x[0] % x[1] < 0) != (x[1] < 0)) ? x[0] % x[1] + x[1] : x[0] % x[1])),
      UINT1(x[1] == 0 ? 0 : x[0] % x[1]), .code = "fmod_floor($0, $1)", .int_code = "imod($0, $1)"}},
    {"rem",
     2,
     {REAL1(std::fmod(x[0], x[1])), SINT1(x[1] == 0 || x[1] == -1 ? 0 : x[0] % x[1]),
      UINT1(x[1] == 0 ? 0 : x[0] % x[1]), .code = "fmod($0, $1)", .int_code = "irem($0, $1)"}},
    {"max",
     2,
     {REAL1(nan_max(x[0], x[1])), SINT1(std::max(x[0], x[1])), UINT1(std::max(x[0], x[1])),
      BOOL1(x[0] || x[1]), .code = "max($0, $1)"}},
    {"min",
     2,
     {REAL1(nan_min(x[0], x[1])), SINT1(std::min(x[0], x[1])), UINT1(std::min(x[0], x[1])),
      BOOL1(x[0] && x[1]), .code = "min($0, $1)"}},
    {"atan2", 2, {REAL1(std::atan2(x[0], x[1])), .code = "atan2($0, $1)"}},
    {"eq",
     2,
     {REAL1(x[0] == x[1]), SINT1(x[0] == x[1]), UINT1(x[0] == x[1]), BOOL1(x[0] == x[1]), .yields_bool = true,
      .code = "$0 == $1"}},
    {"ne",
     2,
     {REAL1(x[0] != x[1]), SINT1(x[0] != x[1]), UINT1(x[0] != x[1]), BOOL1(x[0] != x[1]), .yields_bool = true,
      .code = "$0 != $1"}},
    {"lt",
     2,
     {REAL1(x[0] < x[1]), SINT1(x[0] < x[1]), UINT1(x[0] < x[1]), .yields_bool = true, .code = "$0 < $1"}},
    {"le",
     2,
     {REAL1(x[0] <= x[1]), SINT1(x[0] <= x[1]), UINT1(x[0] <= x[1]), .yields_bool = true,
      .code = "$0 <= $1"}},
    {"gt",
     2,
     {REAL1(x[0] > x[1]), SINT1(x[0] > x[1]), UINT1(x[0] > x[1]), .yields_bool = true, .code = "$0 > $1"}},
    {"ge",
     2,
     {REAL1(x[0] >= x[1]), SINT1(x[0] >= x[1]), UINT1(x[0] >= x[1]), .yields_bool = true,
      .code = "$0 >= $1"}},
    {"and", 2, {SINT1(x[0] & x[1]), UINT1(x[0] & x[1]), BOOL1(x[0] && x[1]), .code = "$0 & $1"}},
    {"or", 2, {SINT1(x[0] | x[1]), UINT1(x[0] | x[1]), BOOL1(x[0] || x[1]), .code = "$0 | $1"}},
    {"xor", 2, {SINT1(x[0] ^ x[1]), UINT1(x[0] ^ x[1]), BOOL1(x[0] != x[1]), .code = "$0 ^ $1"}},
    {"shift_left",
     2,
     {SINT1(x[1] < 0 || x[1] > 63 ? 0 : s(u(x[0]) << x[1])), UINT1(x[1] > 63 ? 0 : x[0] << x[1]),
      .code = "ishl($0, $1)"}},
    {"shift_right",
     2,
     {SINT1(x[1] < 0 || x[1] > 63 ? (x[0] < 0 ? -1 : 0) : x[0] >> x[1]), UINT1(x[1] > 63 ? 0 : x[0] >> x[1]),
      .code = "ishr($0, $1)"}},
};
#undef REAL1
#undef SINT1
#undef UINT1
#undef BOOL1

OpDef pointwise_row(std::string_view name, int inputs) {
  OpDef row;
  row.name = name;
  row.min_inputs = row.max_inputs = inputs;
  row.constraints = {"C1: the element type is one the op accepts", "C2: operands have one type",
                     "C3: shapes broadcast"};
  row.eval = eval_pointwise;
  row.flops = pointwise_flops;
  row.layout = LayoutFreedom::any_same;
  row.alias = AliasRule::in_place;
  row.sharding = "any";
  row.batching = "any";
  return row;
}

}  // namespace

void add_pointwise(OpRows& rows) {
  for (const Row& r : kRows) {
    OpDef row = pointwise_row(r.name, r.inputs);
    row.infer = infer_pointwise;
    row.scalar = &r.scalar;
    rows.push_back(std::move(row));
  }
  OpDef power = pointwise_row("pow", 2);
  static const ScalarDef pow_scalar{.real = [](const double* x) { return std::pow(x[0], x[1]); },
                                    .code = "pow($0, $1)"};
  power.infer = infer_pow;
  power.eval = eval_pow;
  power.scalar = &pow_scalar;
  rows.push_back(std::move(power));
  OpDef select = pointwise_row("select", 3);
  select.infer = infer_select;
  select.eval = eval_select;
  select.precision = Precision::exact;
  static const ScalarDef select_scalar{.code = "$0 ? $1 : $2"};
  select.scalar = &select_scalar;
  rows.push_back(std::move(select));
}

}  // namespace pelton::ir
