// SPDX-License-Identifier: Apache-2.0
// SGD, RMSprop and LARS, with PyTorch's formulas (LARS: You et al. 2017).
#include "train/optimizer/optimizer.h"

namespace pelton::train {

namespace {

using T = data::OptionType;

ValueId sgd(Update& u) {
  return u.momentum_step(u.value, u.decayed_grad(), u.number("momentum"), u.options.boolean("nesterov"));
}

ValueId rmsprop(Update& u) {
  Builder& b = u.b;
  double alpha = u.number("alpha");
  ValueId g = u.decayed_grad();
  ValueId square = u.moved(u.state("square_avg"), alpha, b.op("square", {g}), 1 - alpha);
  u.store("square_avg", square);
  if (u.options.boolean("centered")) {
    ValueId mean = u.moved(u.state("grad_avg"), alpha, g, 1 - alpha);
    u.store("grad_avg", mean);
    square = b.sub(square, b.op("square", {mean}));
  }
  ValueId direction = b.div(g, b.add(b.op("sqrt", {square}), u.scalar(u.number("eps"))));
  return u.momentum_step(u.value, direction, u.number("momentum"), false);
}

// The rate of each matrix is scaled by |p| / |g|; vectors (biases, scales) take plain steps.
ValueId lars(Update& u) {
  Builder& b = u.b;
  ValueId g = u.decayed_grad();
  if (b.rank(u.value) > 1) {
    ValueId p_norm = u.norm(u.value), g_norm = u.norm(u.grad);
    ValueId sum = b.add(b.add(g_norm, u.scaled(p_norm, u.weight_decay)), u.scalar(u.number("eps")));
    ValueId trust = b.div(u.scaled(p_norm, u.number("trust")), sum);
    ValueId zero = u.scalar(0), both = b.op("and", {b.op("gt", {p_norm, zero}), b.op("gt", {g_norm, zero})});
    g = b.mul(g, b.select(both, trust, u.scalar(1)));
  }
  return u.momentum_step(u.value, g, u.number("momentum"), false);
}

}  // namespace

OptimizerDef sgd_optimizer() {
  return {{"sgd", "stochastic gradient descent",
           optimizer_options(0.01, 0,
                             {{"momentum", T::number, 0.0, "0: none", 0, 1},
                              {"nesterov", T::boolean, false, "look ahead along the momentum"}})},
          sgd};
}

OptimizerDef rmsprop_optimizer() {
  return {{"rmsprop", "gradient divided by a running root mean square",
           optimizer_options(0.01, 0,
                             {{"alpha", T::number, 0.99, "decay of the mean square", 0, 1},
                              epsilon(1e-8),
                              {"momentum", T::number, 0.0, "0: none", 0, 1},
                              {"centered", T::boolean, false, "subtract the square of the mean"}})},
          rmsprop};
}

OptimizerDef lars_optimizer() {
  return {{"lars", "SGD with a rate for each layer",
           optimizer_options(1, 0,
                             {{"momentum", T::number, 0.9, "0: none", 0, 1},
                              {"trust", T::number, 0.001, "factor of the layer's rate", 0},
                              epsilon(1e-8)})},
          lars};
}

}  // namespace pelton::train
