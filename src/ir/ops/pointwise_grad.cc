// SPDX-License-Identifier: Apache-2.0
// Gradients of pointwise ops. Letters: x, y operands, r the result, g its gradient. Rules use the result
// where they can, so that fewer inputs live until the backward pass. Ties of max and min share the gradient.
#include <cmath>

#include "ir/ops/gradients.h"

namespace pelton::ir {
namespace {

using C = GradientContext;

// g times the derivative that `f` builds from the operand (or from the result).
template <ValueId (*f)(Builder&, ValueId)>
void by_input(C& c) {
  c.set(0, c.b.mul(c.grad(), f(c.b, c.in(0))));
}
template <ValueId (*f)(Builder&, ValueId)>
void by_result(C& c) {
  c.set(0, c.b.mul(c.grad(), f(c.b, c.result(0))));
}

ValueId square(Builder& b, ValueId x) {
  return b.op("square", {x});
}
ValueId one_minus(Builder& b, ValueId x) {
  return b.sub(b.like(x, 1), x);
}
ValueId one_plus(Builder& b, ValueId x) {
  return b.add(x, b.like(x, 1));
}
ValueId scaled(Builder& b, ValueId x, double by) {
  return b.mul(x, b.like(x, by));
}
ValueId itself(Builder&, ValueId x) {
  return x;
}
ValueId d_log(Builder& b, ValueId x) {
  return b.op("reciprocal", {x});
}
ValueId d_log1p(Builder& b, ValueId x) {
  return d_log(b, one_plus(b, x));
}
ValueId d_sqrt(Builder& b, ValueId r) {
  return b.div(b.like(r, 0.5), r);
}
ValueId d_rsqrt(Builder& b, ValueId r) {
  return scaled(b, b.mul(square(b, r), r), -0.5);
}
ValueId d_sin(Builder& b, ValueId x) {
  return b.op("cos", {x});
}
ValueId d_cos(Builder& b, ValueId x) {
  return b.op("neg", {b.op("sin", {x})});
}
ValueId d_tan(Builder& b, ValueId r) {
  return one_plus(b, square(b, r));
}
ValueId d_asin(Builder& b, ValueId x) {
  return b.op("rsqrt", {one_minus(b, square(b, x))});
}
ValueId d_acos(Builder& b, ValueId x) {
  return b.op("neg", {d_asin(b, x)});
}
ValueId d_atan(Builder& b, ValueId x) {
  return d_log(b, one_plus(b, square(b, x)));
}
ValueId d_sinh(Builder& b, ValueId x) {
  return b.op("cosh", {x});
}
ValueId d_cosh(Builder& b, ValueId x) {
  return b.op("sinh", {x});
}
ValueId d_tanh(Builder& b, ValueId r) {
  return one_minus(b, square(b, r));
}
ValueId d_asinh(Builder& b, ValueId x) {
  return b.op("rsqrt", {one_plus(b, square(b, x))});
}
ValueId d_acosh(Builder& b, ValueId x) {
  return b.op("rsqrt", {b.sub(square(b, x), b.like(x, 1))});
}
ValueId d_atanh(Builder& b, ValueId x) {
  return d_log(b, one_minus(b, square(b, x)));
}
ValueId d_erf(Builder& b, ValueId x) {
  return scaled(b, b.op("exp", {b.op("neg", {square(b, x)})}), 2 / std::sqrt(M_PI));
}
ValueId d_sigmoid(Builder& b, ValueId r) {
  return b.mul(r, one_minus(b, r));
}
ValueId d_softplus(Builder& b, ValueId x) {
  return b.op("sigmoid", {x});
}
ValueId d_abs(Builder& b, ValueId x) {
  return b.op("sign", {x});
}
ValueId d_reciprocal(Builder& b, ValueId r) {
  return b.op("neg", {square(b, r)});
}
ValueId d_square(Builder& b, ValueId x) {
  return scaled(b, x, 2);
}

// A step function: its derivative is zero wherever it has one.
void flat(C&) {}

void neg(C& c) {
  c.set(0, c.b.op("neg", {c.grad()}));
}
void relu(C& c) {
  ValueId r = c.result(0);
  c.set(0, c.b.select(c.b.op("gt", {r, c.b.like(r, 0)}), c.grad(), c.b.like(r, 0)));
}

void add(C& c) {
  for (size_t i : {0, 1})
    if (c.wants(i)) c.set(i, c.grad());
}
void sub(C& c) {
  if (c.wants(0)) c.set(0, c.grad());
  if (c.wants(1)) c.set(1, c.b.op("neg", {c.grad()}));
}
void mul(C& c) {
  for (size_t i : {0, 1})
    if (c.wants(i)) c.set(i, c.b.mul(c.grad(), c.in(1 - i)));
}
void div(C& c) {
  ValueId over = c.b.div(c.grad(), c.in(1));
  if (c.wants(0)) c.set(0, over);
  if (c.wants(1)) c.set(1, c.b.op("neg", {c.b.mul(over, c.result(0))}));
}

// x^p: p x^(p-1), and r log x. Where p is 0 the first is 0 whatever x is; where x is 0 and p is not negative,
// the second is.
void pow(C& c) {
  Builder& b = c.b;
  ValueId x = c.in(0), zero = b.like(x, 0);
  ValueId p = b.cast(c.in(1), b.dtype(x));
  if (c.wants(0)) {
    ValueId d = b.mul(p, b.op("pow", {x, b.sub(p, b.like(x, 1))}));
    const Tensor* known = b.graph().constant(c.in(1));
    bool never_zero = known && known->count() == 1 && known->get_double(0) != 0;
    if (!never_zero) d = b.select(b.op("eq", {p, zero}), zero, d);
    c.set(0, b.mul(c.grad(), d));
  }
  if (c.wants(1)) {
    ValueId none = b.op("and", {b.op("eq", {x, zero}), b.op("ge", {p, zero})});
    ValueId log = b.op("log", {b.select(none, b.like(x, 1), x)});
    c.set(1, b.cast(b.mul(c.grad(), b.mul(c.result(0), log)), b.dtype(c.in(1))));
  }
}

// x - whole(x / y) y.
template <bool floored>
void remainder(C& c) {
  if (c.wants(0)) c.set(0, c.grad());
  if (!c.wants(1)) return;
  ValueId whole = c.b.op(floored ? "floor" : "trunc", {c.b.div(c.in(0), c.in(1))});
  c.set(1, c.b.op("neg", {c.b.mul(c.grad(), whole)}));
}

template <bool greater>
void extreme(C& c) {
  Builder& b = c.b;
  ValueId half = b.mul(c.grad(), b.like(c.grad(), 0.5)), zero = b.like(c.grad(), 0);
  ValueId tie = b.op("eq", {c.in(0), c.in(1)});
  for (size_t i : {0, 1}) {
    if (!c.wants(i)) continue;
    ValueId wins = b.op(greater ? "gt" : "lt", {c.in(i), c.in(1 - i)});
    c.set(i, b.select(wins, c.grad(), b.select(tie, half, zero)));
  }
}

// atan2(y, x).
void atan2(C& c) {
  Builder& b = c.b;
  ValueId norm = b.add(square(b, c.in(0)), square(b, c.in(1)));
  ValueId over = b.div(c.grad(), norm);
  if (c.wants(0)) c.set(0, b.mul(over, c.in(1)));
  if (c.wants(1)) c.set(1, b.op("neg", {b.mul(over, c.in(0))}));
}

void select(C& c) {
  ValueId zero = c.b.like(c.grad(), 0);
  if (c.wants(1)) c.set(1, c.b.select(c.in(0), c.grad(), zero));
  if (c.wants(2)) c.set(2, c.b.select(c.in(0), zero, c.grad()));
}

void cast(C& c) {
  c.set(0, c.b.cast(c.grad(), c.b.dtype(c.in(0))));
}

}  // namespace

void add_pointwise_gradients(OpRows& rows) {
  set_gradients(rows, {{"exp", by_result<itself>},
                       {"log", by_input<d_log>},
                       {"log1p", by_input<d_log1p>},
                       {"expm1", by_result<one_plus>},
                       {"sqrt", by_result<d_sqrt>},
                       {"rsqrt", by_result<d_rsqrt>},
                       {"sin", by_input<d_sin>},
                       {"cos", by_input<d_cos>},
                       {"tan", by_result<d_tan>},
                       {"asin", by_input<d_asin>},
                       {"acos", by_input<d_acos>},
                       {"atan", by_input<d_atan>},
                       {"sinh", by_input<d_sinh>},
                       {"cosh", by_input<d_cosh>},
                       {"tanh", by_result<d_tanh>},
                       {"asinh", by_input<d_asinh>},
                       {"acosh", by_input<d_acosh>},
                       {"atanh", by_input<d_atanh>},
                       {"erf", by_input<d_erf>},
                       {"sigmoid", by_result<d_sigmoid>},
                       {"softplus", by_input<d_softplus>},
                       {"neg", neg},
                       {"abs", by_input<d_abs>},
                       {"sign", flat},
                       {"reciprocal", by_result<d_reciprocal>},
                       {"square", by_input<d_square>},
                       {"relu", relu},
                       {"floor", flat},
                       {"ceil", flat},
                       {"round", flat},
                       {"trunc", flat},
                       {"add", add},
                       {"sub", sub},
                       {"mul", mul},
                       {"div", div},
                       {"pow", pow},
                       {"mod", remainder<true>},
                       {"rem", remainder<false>},
                       {"max", extreme<true>},
                       {"min", extreme<false>},
                       {"atan2", atan2},
                       {"select", select},
                       {"cast", cast}});
}

}  // namespace pelton::ir
