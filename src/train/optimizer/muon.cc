// SPDX-License-Identifier: Apache-2.0
// Muon (Jordan et al. 2024): the momentum of a matrix is made orthogonal by a Newton-Schulz iteration.
// Filters count as matrices [O, rest]; vectors take AdamW steps.
#include <cmath>
#include <map>

#include "train/optimizer/optimizer.h"

namespace pelton::train {

namespace {

// Coefficients of the quintic that brings singular values near 1 in few iterations.
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;

// x [B, r, c], each matrix by itself.
ValueId orthogonal(const Update& u, ValueId x, int64_t iterations) {
  Builder& b = u.b;
  const Shape shape = b.shape(x);
  const bool tall = shape[1].value() > shape[2].value();
  if (tall) x = b.transpose(x, {0, 2, 1});
  const ValueId norm = b.op("sqrt", {b.reduce("reduce_sum", b.op("square", {x}), {1, 2}, true)});
  x = b.div(x, b.op("max", {norm, u.scalar(1e-7)}));
  for (int64_t i = 0; i < iterations; ++i) {
    ValueId gram = b.op("matmul", {x, x}, {{"transpose_b", true}});
    ValueId poly = u.blend(kB, gram, kC, b.matmul(gram, gram));
    x = b.add(u.scaled(x, kA), b.matmul(poly, x));
  }
  return tall ? b.transpose(x, {0, 2, 1}) : x;
}

bool is_matrix(const Update& u) {
  return u.b.rank(u.value) >= 2;
}
// Rows and columns of a matrix or of filters.
std::pair<int64_t, int64_t> sizes(const Update& u) {
  const Shape shape = u.b.shape(u.value);
  int64_t rest = 1;
  for (size_t i = 1; i < shape.size(); ++i) rest *= shape[i].value();
  return {shape[0].value(), rest};
}

// The momentum of each matrix made orthogonal, those of one shape in one batch of products.
void directions(const std::vector<Update*>& all) {
  std::map<std::pair<int64_t, int64_t>, std::vector<Update*>> by_shape;
  for (Update* u : all)
    if (is_matrix(*u)) by_shape[sizes(*u)].push_back(u);
  for (const auto& [shape, updates] : by_shape) {
    Builder& b = updates[0]->b;
    const Dim rows = shape.first, columns = shape.second;
    std::vector<ValueId> stack;
    for (Update* u : updates) {
      const double momentum = u->number("momentum");
      const ValueId buffer = u->moved(u->state("momentum"), momentum, u->grad, 1 - momentum);
      u->store("momentum", buffer);
      const ValueId g =
          u->options.boolean("nesterov") ? u->blend(1 - momentum, u->grad, momentum, buffer) : buffer;
      stack.push_back(b.reshape(g, {1, rows, columns}));
    }
    const ValueId x = stack.size() == 1 ? stack[0] : b.op("concat", stack, {{"axis", int64_t{0}}});
    const ValueId q = orthogonal(*updates[0], x, updates[0]->options.integer("iterations"));
    for (size_t i = 0; i < updates.size(); ++i) {
      ValueId one = q;
      if (updates.size() > 1)
        one = b.op("slice", {q},
                   {{"axes", ir::Ints{0}},
                    {"starts", Shape{static_cast<int64_t>(i)}},
                    {"sizes", Shape{1}},
                    {"steps", ir::Ints{1}}});
      updates[i]->direction = b.reshape(one, b.shape(updates[i]->value));
    }
  }
}

ValueId muon(Update& u) {
  Builder& b = u.b;
  if (!is_matrix(u)) return b.sub(u.shrunk_value(), b.mul(u.adam_direction(u.grad), u.lr));
  if (!u.direction) directions({&u});
  const auto [rows, columns] = sizes(u);
  const double ratio = static_cast<double>(rows) / static_cast<double>(columns);
  ValueId direction = u.scaled(u.direction, std::sqrt(std::max(1.0, ratio)));
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
          muon,
          directions};
}

}  // namespace pelton::train
