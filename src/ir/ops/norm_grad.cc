// SPDX-License-Identifier: Apache-2.0
// Gradients of softmax and its logarithm, from the result alone.
#include "ir/ops/composite.h"
#include "ir/ops/gradients.h"

namespace pelton::ir {
namespace {

using C = GradientContext;

ValueId sum_along(C& c, ValueId v) {
  return c.b.reduce("reduce_sum", v, {wrap_axis(c.node.get_int("axis"), c.b.rank(v))}, true);
}

// y (g - sum(g y)).
void softmax(C& c) {
  Builder& b = c.b;
  DType t = b.dtype(c.grad()), wide = wide_type(t);
  ValueId y = b.cast(c.result(0), wide), g = b.cast(c.grad(), wide);
  c.set(0, b.cast(b.mul(y, b.sub(g, sum_along(c, b.mul(g, y)))), t));
}
// g - exp(y) sum(g).
void log_softmax(C& c) {
  Builder& b = c.b;
  DType t = b.dtype(c.grad()), wide = wide_type(t);
  ValueId y = b.cast(c.result(0), wide), g = b.cast(c.grad(), wide);
  c.set(0, b.cast(b.sub(g, b.mul(b.op("exp", {y}), sum_along(c, g))), t));
}

}  // namespace

void add_norm_gradients(OpRows& rows) {
  set_gradients(rows, {{"softmax", softmax}, {"log_softmax", log_softmax}});
}

}  // namespace pelton::ir
