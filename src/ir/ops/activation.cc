// SPDX-License-Identifier: Apache-2.0
// Activations kept whole: functions of one element and at most two numbers, and prelu and clamp.
#include <cmath>

#include "ir/ops/composite.h"
#include "ir/ops/scalar_math.h"

namespace pelton::ir {
namespace {

void infer_activation(InferContext& c) {
  require_float(c, 0, "C1");
  c.output(0, c.dtype(0), c.shape(0));
}

// max and min that keep NaN.
double at_least(double x, double low) {
  return x < low ? low : x;
}
double at_most(double x, double high) {
  return x > high ? high : x;
}

double real_attr(const Node& n, std::string_view attr) {
  return n.get_real(attr);
}
// The function of a row applied with the values of its attributes.
template <double (*f)(double x, const Node& n)>
void eval_with(EvalContext& c) {
  c.out(0, map_real(c.in(0), [&](double x) { return f(x, c.node); }));
}

double gelu(double x, const Node& n) {
  if (!n.get_bool("tanh")) return 0.5 * x * std::erfc(-x * M_SQRT1_2);
  return x * sigmoid(2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
}
double silu(double x, const Node&) {
  return x * sigmoid(x);
}
double hard_sigmoid(double x, const Node& n) {
  return at_most(at_least(real_attr(n, "alpha") * x + real_attr(n, "beta"), 0), 1);
}
double hard_swish(double x, const Node&) {
  return x * at_most(at_least(x / 6 + 0.5, 0), 1);
}
double leaky_relu(double x, const Node& n) {
  return x < 0 ? real_attr(n, "alpha") * x : x;
}
double elu(double x, const Node& n) {
  return x < 0 ? real_attr(n, "alpha") * std::expm1(x) : x;
}
double selu(double x, const Node& n) {
  return real_attr(n, "gamma") * (x > 0 ? x : real_attr(n, "alpha") * std::expm1(x));
}
double celu(double x, const Node& n) {
  double a = real_attr(n, "alpha");
  return x > 0 ? x : a * std::expm1(x / a);
}
double mish(double x, const Node&) {
  return x * std::tanh(softplus(x));
}
double softsign(double x, const Node&) {
  return x / (1 + std::fabs(x));
}

using Values = std::vector<ValueId>;

Values decompose_gelu(Builder& b, const Node& n) {
  ValueId x = n.inputs[0];
  if (n.get_bool("tanh")) {
    ValueId cube = b.mul(b.mul(x, x), x);
    ValueId inner = b.mul(b.add(x, b.mul(cube, b.like(x, 0.044715))), b.like(x, std::sqrt(2 / M_PI)));
    return {b.mul(b.mul(x, b.like(x, 0.5)), b.add(b.op("tanh", {inner}), b.like(x, 1)))};
  }
  ValueId e = b.op("erf", {b.mul(x, b.like(x, M_SQRT1_2))});
  return {b.mul(b.mul(x, b.like(x, 0.5)), b.add(e, b.like(x, 1)))};
}
Values decompose_silu(Builder& b, const Node& n) {
  return {b.mul(n.inputs[0], b.op("sigmoid", {n.inputs[0]}))};
}
ValueId clip(Builder& b, ValueId x, double low, double high) {
  return b.op("min", {b.op("max", {x, b.like(x, low)}), b.like(x, high)});
}
Values decompose_hard_sigmoid(Builder& b, const Node& n) {
  ValueId x = n.inputs[0];
  ValueId line = b.add(b.mul(x, b.like(x, real_attr(n, "alpha"))), b.like(x, real_attr(n, "beta")));
  return {clip(b, line, 0, 1)};
}
Values decompose_hard_swish(Builder& b, const Node& n) {
  ValueId x = n.inputs[0];
  return {b.mul(x, clip(b, b.add(b.div(x, b.like(x, 6)), b.like(x, 0.5)), 0, 1))};
}
// x where the test with zero holds, `otherwise` elsewhere.
ValueId where_zero(Builder& b, std::string_view test, ValueId x, ValueId yes, ValueId otherwise) {
  return b.select(b.op(test, {x, b.like(x, 0)}), yes, otherwise);
}
Values decompose_leaky_relu(Builder& b, const Node& n) {
  ValueId x = n.inputs[0];
  return {where_zero(b, "lt", x, b.mul(x, b.like(x, real_attr(n, "alpha"))), x)};
}
Values decompose_elu(Builder& b, const Node& n) {
  ValueId x = n.inputs[0];
  return {where_zero(b, "lt", x, b.mul(b.op("expm1", {x}), b.like(x, real_attr(n, "alpha"))), x)};
}
Values decompose_selu(Builder& b, const Node& n) {
  ValueId x = n.inputs[0];
  ValueId low = b.mul(b.op("expm1", {x}), b.like(x, real_attr(n, "alpha")));
  return {b.mul(where_zero(b, "gt", x, x, low), b.like(x, real_attr(n, "gamma")))};
}
Values decompose_celu(Builder& b, const Node& n) {
  ValueId x = n.inputs[0], alpha = b.like(x, real_attr(n, "alpha"));
  return {where_zero(b, "gt", x, x, b.mul(b.op("expm1", {b.div(x, alpha)}), alpha))};
}
Values decompose_mish(Builder& b, const Node& n) {
  return {b.mul(n.inputs[0], b.op("tanh", {b.op("softplus", {n.inputs[0]})}))};
}
Values decompose_softsign(Builder& b, const Node& n) {
  ValueId x = n.inputs[0];
  return {b.div(x, b.add(b.op("abs", {x}), b.like(x, 1)))};
}

// x[...], slope broadcasts to x: negative elements times their slope.
void infer_prelu(InferContext& c) {
  c.require(supports_number(c.dtype(0)), ErrorCode::bad_type, "C1",
            cat("does not take ", name(c.dtype(0)), " elements"));
  require_same_type(c, 0, 1, "C2");
  require_broadcasts_into(c, 1, 0, "C3");
  c.output(0, c.dtype(0), c.shape(0));
}
void eval_prelu(EvalContext& c) {
  const Tensor &x = c.in(0), &slope = c.in(1);
  if (broadcast_dims({x.dims(), slope.dims()}) != x.dims())
    c.refuse(ErrorCode::bad_shape, cat("cannot broadcast the slope ", slope.str(), " to ", x.str()));
  Dims strides = row_major_strides(slope.dims());
  Tensor out = Tensor::zeros(x.dtype(), x.dims());
  int64_t i = 0;
  for_each_index(x.dims(), [&](const Dims& index) {
    int64_t at = broadcast_offset(index, slope.dims(), strides);
    if (is_float(x.dtype())) {
      double v = x.get_double(i);
      out.set_double(i, v < 0 ? v * slope.get_double(at) : v);
    } else {
      int64_t v = x.get_int(i);
      auto product = static_cast<uint64_t>(v) * static_cast<uint64_t>(slope.get_int(at));
      out.set_int(i, is_signed_int(x.dtype()) && v < 0 ? static_cast<int64_t>(product) : v);
    }
    ++i;
  });
  c.out(0, std::move(out));
}
Values decompose_prelu(Builder& b, const Node& n) {
  ValueId x = n.inputs[0];
  return {where_zero(b, "lt", x, b.mul(x, n.inputs[1]), x)};
}

// min(max(x, low), high): a bound that is absent does not bound, low above high yields high.
void infer_clamp(InferContext& c) {
  c.require(supports_number(c.dtype(0)), ErrorCode::bad_type, "C1",
            cat("does not take ", name(c.dtype(0)), " elements"));
  for (size_t i : {1, 2})
    if (c.has(i)) {
      require_same_type(c, 0, i, "C2");
      require_single(c, i, "C3");
    }
  c.output(0, c.dtype(0), c.shape(0));
}
void eval_clamp(EvalContext& c) {
  const Tensor& x = c.in(0);
  for (size_t i : {1, 2})
    if (c.has(i) && c.in(i).count() != 1)
      c.refuse(ErrorCode::bad_shape, cat("needs one value as bound, not ", c.in(i).str()));
  if (is_float(x.dtype())) {
    // A bound that is NaN gives NaN, as max and min do; a NaN element stays.
    std::vector<double> values = to_doubles(x);
    double low = c.has(1) ? c.in(1).get_double(0) : -INFINITY;
    double high = c.has(2) ? c.in(2).get_double(0) : INFINITY;
    for (double& v : values) {
      if (std::isnan(v)) continue;
      if (!(v >= low)) v = low;
      if (!(v <= high)) v = high;
    }
    return c.out(0, from_doubles(x.dtype(), x.dims(), values));
  }
  auto less = [&](int64_t a, int64_t b) {
    return x.dtype() == DType::u64 ? static_cast<uint64_t>(a) < static_cast<uint64_t>(b) : a < b;
  };
  std::vector<int64_t> values = to_ints(x);
  for (int64_t& v : values) {
    if (c.has(1) && less(v, c.in(1).get_int(0))) v = c.in(1).get_int(0);
    if (c.has(2) && less(c.in(2).get_int(0), v)) v = c.in(2).get_int(0);
  }
  c.out(0, from_ints(x.dtype(), x.dims(), values));
}
Values decompose_clamp(Builder& b, const Node& n) {
  ValueId x = n.inputs[0];
  for (size_t i = 1; i < n.inputs.size(); ++i)
    if (n.inputs[i]) x = b.op(i == 1 ? "max" : "min", {x, b.reshape(n.inputs[i], {})});
  return {x};
}

// `flops` an element: one for each arithmetic operation and call.
template <int per_element>
double activation_flops(const Graph&, const Node&, const std::vector<Dims>&, const std::vector<Dims>& out) {
  return per_element * static_cast<double>(element_count(out[0]));
}

OpDef activation(std::string_view name, std::vector<AttrDef> attrs, void (*eval)(EvalContext&),
                 Values (*decompose)(Builder&, const Node&)) {
  OpDef row;
  row.name = name;
  row.family = Family::composite;
  row.attrs = std::move(attrs);
  row.constraints = {"C1: the element type is f64, f32, f16 or bf16"};
  row.infer = infer_activation;
  row.eval = eval;
  row.flops = activation_flops<4>;
  row.decompose = decompose;
  row.layout = LayoutFreedom::any_same;
  row.alias = AliasRule::in_place;
  row.sharding = row.batching = "any";
  return row;
}
AttrDef real_def(std::string_view name, double value) {
  return {name, AttrKind::real, Attr(value)};
}

}  // namespace

void add_activation(OpRows& rows) {
  rows.push_back(
      activation("gelu", {{"tanh", AttrKind::boolean, Attr(false)}}, eval_with<gelu>, decompose_gelu));
  rows.push_back(activation("silu", {}, eval_with<silu>, decompose_silu));
  rows.push_back(activation("hard_sigmoid", {real_def("alpha", 0.2), real_def("beta", 0.5)},
                            eval_with<hard_sigmoid>, decompose_hard_sigmoid));
  rows.push_back(activation("hard_swish", {}, eval_with<hard_swish>, decompose_hard_swish));
  rows.push_back(
      activation("leaky_relu", {real_def("alpha", 0.01)}, eval_with<leaky_relu>, decompose_leaky_relu));
  rows.push_back(activation("elu", {real_def("alpha", 1)}, eval_with<elu>, decompose_elu));
  rows.push_back(activation(
      "selu", {real_def("alpha", 1.67326319217681884765625), real_def("gamma", 1.05070102214813232421875)},
      eval_with<selu>, decompose_selu));
  rows.push_back(activation("celu", {real_def("alpha", 1)}, eval_with<celu>, decompose_celu));
  rows.push_back(activation("mish", {}, eval_with<mish>, decompose_mish));
  rows.push_back(activation("softsign", {}, eval_with<softsign>, decompose_softsign));

  OpDef prelu = activation("prelu", {}, eval_prelu, decompose_prelu);
  prelu.min_inputs = prelu.max_inputs = 2;
  prelu.constraints = {"C1: the element type is a number", "C2: x and slope have one type",
                       "C3: slope broadcasts to x"};
  prelu.infer = infer_prelu;
  prelu.flops = activation_flops<2>;
  rows.push_back(std::move(prelu));

  OpDef clamp = activation("clamp", {}, eval_clamp, decompose_clamp);
  clamp.max_inputs = 3;
  clamp.constraints = {"C1: the element type is a number", "C2: the bounds have the type of x",
                       "C3: a bound is one value"};
  clamp.infer = infer_clamp;
  clamp.flops = activation_flops<2>;
  rows.push_back(std::move(clamp));
}

}  // namespace pelton::ir
