// SPDX-License-Identifier: Apache-2.0
// Gradients of the activations, each from the operand alone. Branches that are not taken stay out of
// products, since an infinity there times 0 would be NaN.
#include <cmath>

#include "ir/ops/composite.h"
#include "ir/ops/gradients.h"

namespace pelton::ir {
namespace {

using C = GradientContext;

ValueId times(Builder& b, ValueId x, double by) {
  return b.mul(x, b.like(x, by));
}
ValueId plus(Builder& b, ValueId x, double by) {
  return b.add(x, b.like(x, by));
}
// g where x > 0, `low` elsewhere.
void above_zero(C& c, ValueId high, ValueId low) {
  c.set(0, c.b.select(c.b.op("gt", {c.in(0), c.b.like(c.in(0), 0)}), high, low));
}

void gelu(C& c) {
  Builder& b = c.b;
  ValueId x = c.in(0), d;
  if (c.node.get_bool("tanh")) {
    const double k = std::sqrt(2 / M_PI), cubic = 0.044715;
    ValueId xx = b.op("square", {x});
    ValueId t = b.op("tanh", {times(b, b.mul(x, plus(b, times(b, xx, cubic), 1)), k)});
    ValueId inner = plus(b, times(b, xx, 3 * cubic * k), k);
    ValueId slope = b.mul(b.mul(b.sub(b.like(x, 1), b.op("square", {t})), inner), x);
    d = times(b, b.add(plus(b, t, 1), slope), 0.5);
  } else {
    ValueId cdf = times(b, plus(b, b.op("erf", {times(b, x, M_SQRT1_2)}), 1), 0.5);
    ValueId pdf = times(b, b.op("exp", {times(b, b.op("square", {x}), -0.5)}), 1 / std::sqrt(2 * M_PI));
    d = b.add(cdf, b.mul(x, pdf));
  }
  c.set(0, b.mul(c.grad(), d));
}

void silu(C& c) {
  Builder& b = c.b;
  ValueId x = c.in(0), s = b.op("sigmoid", {x});
  ValueId d = b.mul(s, plus(b, b.mul(x, b.sub(b.like(x, 1), s)), 1));
  c.set(0, b.mul(c.grad(), d));
}

void hard_sigmoid(C& c) {
  Builder& b = c.b;
  ValueId x = c.in(0), g = c.grad();
  double alpha = c.node.get_real("alpha");
  ValueId line = plus(b, times(b, x, alpha), c.node.get_real("beta"));
  ValueId inside = b.op("and", {b.op("gt", {line, b.like(x, 0)}), b.op("lt", {line, b.like(x, 1)})});
  c.set(0, b.select(inside, times(b, g, alpha), b.like(g, 0)));
}
void hard_swish(C& c) {
  Builder& b = c.b;
  ValueId x = c.in(0), g = c.grad();
  ValueId slope = plus(b, times(b, x, 1.0 / 3), 0.5);
  ValueId upper = b.select(b.op("lt", {x, b.like(x, 3)}), b.mul(g, slope), g);
  c.set(0, b.select(b.op("gt", {x, b.like(x, -3)}), upper, b.like(g, 0)));
}

void leaky_relu(C& c) {
  above_zero(c, c.grad(), times(c.b, c.grad(), c.node.get_real("alpha")));
}
ValueId exponential(C& c, double inside) {
  return c.b.mul(c.grad(), c.b.op("exp", {times(c.b, c.in(0), inside)}));
}
void elu(C& c) {
  above_zero(c, c.grad(), times(c.b, exponential(c, 1), c.node.get_real("alpha")));
}
void selu(C& c) {
  double gamma = c.node.get_real("gamma");
  above_zero(c, times(c.b, c.grad(), gamma), times(c.b, exponential(c, 1), gamma * c.node.get_real("alpha")));
}
void celu(C& c) {
  above_zero(c, c.grad(), exponential(c, 1 / c.node.get_real("alpha")));
}

void mish(C& c) {
  Builder& b = c.b;
  ValueId x = c.in(0), t = b.op("tanh", {b.op("softplus", {x})});
  ValueId slope = b.mul(b.sub(b.like(x, 1), b.op("square", {t})), b.op("sigmoid", {x}));
  c.set(0, b.mul(c.grad(), b.add(t, b.mul(x, slope))));
}
void softsign(C& c) {
  Builder& b = c.b;
  c.set(0, b.div(c.grad(), b.op("square", {plus(b, b.op("abs", {c.in(0)}), 1)})));
}

void prelu(C& c) {
  Builder& b = c.b;
  ValueId x = c.in(0), g = c.grad();
  if (c.wants(0)) above_zero(c, g, b.mul(g, c.in(1)));
  if (c.wants(1)) c.set(1, b.select(b.op("lt", {x, b.like(x, 0)}), b.mul(g, x), b.like(g, 0)));
}

// min(max(x, low), high).
void clamp(C& c) {
  Builder& b = c.b;
  ValueId x = c.in(0), g = c.grad(), zero = b.like(g, 0);
  ValueId low = c.has(1) ? b.reshape(c.in(1), {}) : ValueId{},
          high = c.has(2) ? b.reshape(c.in(2), {}) : ValueId{};
  ValueId raised = low ? b.op("max", {x, low}) : x;
  auto bound = [&](size_t i, ValueId binds) {
    ValueId sum = b.reduce("reduce_sum", b.select(binds, g, zero), axis_range(0, b.rank(g)), false);
    c.set(i, b.reshape(sum, b.shape(c.in(i))));
  };
  if (c.wants(0)) {
    ValueId d = g;
    if (low) d = b.select(b.op("ge", {x, low}), d, zero);
    if (high) d = b.select(b.op("le", {raised, high}), d, zero);
    c.set(0, d);
  }
  if (low && c.wants(1)) {
    ValueId binds = b.op("lt", {x, low});
    if (high) binds = b.op("and", {binds, b.op("le", {low, high})});
    bound(1, binds);
  }
  if (high && c.wants(2)) bound(2, b.op("gt", {raised, high}));
}

}  // namespace

void add_activation_gradients(OpRows& rows) {
  set_gradients(rows, {{"gelu", gelu},
                       {"silu", silu},
                       {"hard_sigmoid", hard_sigmoid},
                       {"hard_swish", hard_swish},
                       {"leaky_relu", leaky_relu},
                       {"elu", elu},
                       {"selu", selu},
                       {"celu", celu},
                       {"mish", mish},
                       {"softsign", softsign},
                       {"prelu", prelu},
                       {"clamp", clamp}});
}

}  // namespace pelton::ir
