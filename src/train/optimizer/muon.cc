// SPDX-License-Identifier: Apache-2.0
// Muon (Jordan et al. 2024): the momentum of a matrix is made orthogonal by a Newton-Schulz iteration.
// Filters count as matrices [O, rest]; vectors take AdamW steps.
#include <cmath>

#include "train/optimizer/optimizer.h"

namespace pelton::train {

namespace {

// Coefficients of the quintic that brings singular values near 1 in few iterations.
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;

ValueId orthogonal(Update& u, ValueId m, int64_t iterations) {
  Builder& b = u.b;
  const Shape shape = b.shape(m);
  bool tall = shape[0].value() > shape[1].value();
  ValueId x = tall ? b.transpose(m, {1, 0}) : m;
  x = b.div(x, b.op("max", {u.norm(x), u.scalar(1e-7)}));
  for (int64_t i = 0; i < iterations; ++i) {
    ValueId gram = b.op("matmul", {x, x}, {{"transpose_b", true}});
    ValueId poly = u.blend(kB, gram, kC, b.matmul(gram, gram));
    x = b.add(u.scaled(x, kA), b.matmul(poly, x));
  }
  return tall ? b.transpose(x, {1, 0}) : x;
}

ValueId muon(Update& u) {
  Builder& b = u.b;
  const Shape shape = b.shape(u.value);
  if (shape.size() < 2) return b.sub(u.shrunk_value(), b.mul(u.adam_direction(u.grad), u.lr));
  double momentum = u.number("momentum");
  ValueId buffer = u.moved(u.state("momentum"), momentum, u.grad, 1 - momentum);
  u.store("momentum", buffer);
  ValueId g = u.options.boolean("nesterov") ? u.blend(1 - momentum, u.grad, momentum, buffer) : buffer;
  Dim rest = 1;
  for (size_t i = 1; i < shape.size(); ++i) rest = rest * shape[i];
  ValueId q = orthogonal(u, b.reshape(g, {shape[0], rest}), u.options.integer("iterations"));
  double ratio = static_cast<double>(shape[0].value()) / static_cast<double>(rest.value());
  ValueId direction = u.scaled(b.reshape(q, shape), std::sqrt(std::max(1.0, ratio)));
  return b.sub(u.shrunk_value(), b.mul(direction, u.lr));
}

}  // namespace

OptimizerDef muon_optimizer() {
  using T = data::OptionType;
  return {{"muon", "momentum made orthogonal, for matrices; AdamW for vectors",
           optimizer_options(1e-3, 0.1,
                             {{"momentum", T::number, 0.95, "decay of the momentum", 0, 1},
                              {"nesterov", T::boolean, true, "look ahead along the momentum"},
                              {"iterations", T::integer, 5, "of the orthogonalisation", 1, 20},
                              adam_betas(),
                              epsilon(1e-8)})},
          muon};
}

}  // namespace pelton::train
