// SPDX-License-Identifier: Apache-2.0
// Adam (Kingma and Ba 2014), AdamW (Loshchilov and Hutter 2017) with PyTorch's formulas, LAMB (You et al.
// 2019).
#include "train/optimizer/optimizer.h"

namespace pelton::train {

namespace {

ValueId adam(Update& u) {
  ValueId direction = u.adam_direction(u.decayed_grad());
  return u.b.sub(u.value, u.b.mul(direction, u.lr));
}

ValueId adamw(Update& u) {
  ValueId direction = u.adam_direction(u.grad);
  return u.b.sub(u.shrunk_value(), u.b.mul(direction, u.lr));
}

// The step of each matrix has the length lr * |p|; vectors take Adam's length.
ValueId lamb(Update& u) {
  Builder& b = u.b;
  ValueId direction = u.adam_direction(u.grad);
  if (u.weight_decay != 0) direction = b.add(direction, u.scaled(u.value, u.weight_decay));
  if (b.rank(u.value) > 1) {
    ValueId p_norm = u.norm(u.value), d_norm = u.norm(direction), zero = u.scalar(0);
    ValueId both = b.op("and", {b.op("gt", {p_norm, zero}), b.op("gt", {d_norm, zero})});
    direction = b.mul(direction, b.select(both, b.div(p_norm, d_norm), u.scalar(1)));
  }
  return b.sub(u.value, b.mul(direction, u.lr));
}

}  // namespace

OptimizerDef adam_optimizer() {
  return {{"adam", "adaptive moments, decay as part of the gradient",
           optimizer_options(1e-3, 0, {adam_betas(), epsilon(1e-8)})},
          adam};
}

OptimizerDef adamw_optimizer() {
  return {{"adamw", "adaptive moments, decay of the weights themselves",
           optimizer_options(1e-3, 1e-2, {adam_betas(), epsilon(1e-8)})},
          adamw};
}

OptimizerDef lamb_optimizer() {
  return {{"lamb", "adaptive moments with a step length for each layer",
           optimizer_options(1e-3, 1e-2, {adam_betas(), epsilon(1e-6)})},
          lamb};
}

}  // namespace pelton::train
