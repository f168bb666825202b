// SPDX-License-Identifier: Apache-2.0
// Optimizer steps of ai.onnx.preview.training: inputs are rate, step, then every parameter, gradient and
// state.
#include "onnx/import/helpers.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

struct Tensors {
  ValueId rate, step;
  size_t count;  // of parameters
  double norm, decay;
};
Tensors tensors(NodeContext& c, size_t kinds) {
  if (c.input_count() < 2 + kinds || (c.input_count() - 2) % kinds)
    c.refuse(ErrorCode::bad_format, cat("has ", c.input_count(), " inputs, not 2 and a multiple of ", kinds));
  return {c.in(0), c.in(1), (c.input_count() - 2) / kinds, c.get_real("norm_coefficient", 0),
          c.get_real("decay_factor", 0)};
}
ValueId times(NodeContext& c, ValueId x, double k) {
  return c.b.mul(x, c.b.like(x, k));
}
ValueId plus(NodeContext& c, ValueId x, double k) {
  return c.b.add(x, c.b.like(x, k));
}
ValueId regularised(NodeContext& c, const Tensors& t, ValueId x, ValueId g) {
  return t.norm == 0 ? g : c.b.add(g, times(c, x, t.norm));
}

void adagrad(NodeContext& c) {
  Tensors t = tensors(c, 3);
  double eps = c.get_real("epsilon", 0);
  ValueId step = c.b.cast(t.step, c.b.dtype(t.rate));
  ValueId rate = c.b.div(t.rate, plus(c, times(c, step, t.decay), 1));
  for (size_t i = 0; i < t.count; ++i) {
    ValueId x = c.in(2 + i), g = regularised(c, t, x, c.in(2 + t.count + i)), h = c.in(2 + 2 * t.count + i);
    h = c.b.add(h, c.b.op("square", {g}));
    ValueId adaptive = plus(c, c.b.op("sqrt", {h}), eps);
    c.out(i, c.b.sub(x, c.b.div(c.b.mul(g, rate), adaptive)));
    c.out(t.count + i, h);
  }
}

void adam(NodeContext& c) {
  Tensors t = tensors(c, 4);
  double alpha = c.get_real("alpha", static_cast<double>(0.9f)),
         beta = c.get_real("beta", static_cast<double>(0.999f));
  double eps = c.get_real("epsilon", 0), after = c.get_real("norm_coefficient_post", 0);
  ValueId step = c.b.cast(t.step, c.b.dtype(t.rate));
  auto one_minus_power = [&](double base) {
    ValueId p = c.b.op("pow", {c.b.like(t.rate, base), step});
    return c.b.sub(c.b.like(t.rate, 1), p);
  };
  ValueId corrected =
      c.b.div(c.b.mul(t.rate, c.b.op("sqrt", {one_minus_power(beta)})), one_minus_power(alpha));
  ValueId rate = c.b.select(c.b.op("gt", {t.step, c.b.like(t.step, 0)}), corrected, t.rate);
  for (size_t i = 0; i < t.count; ++i) {
    ValueId x = c.in(2 + i), g = regularised(c, t, x, c.in(2 + t.count + i));
    ValueId v = c.in(2 + 2 * t.count + i), h = c.in(2 + 3 * t.count + i);
    v = c.b.add(times(c, v, alpha), times(c, g, 1 - alpha));
    h = c.b.add(times(c, h, beta), times(c, c.b.op("square", {g}), 1 - beta));
    ValueId moved = c.b.sub(x, c.b.div(c.b.mul(rate, v), plus(c, c.b.op("sqrt", {h}), eps)));
    c.out(i, after == 0 ? moved : times(c, moved, 1 - after));
    c.out(t.count + i, v);
    c.out(2 * t.count + i, h);
  }
}

void momentum(NodeContext& c) {
  Tensors t = tensors(c, 3);
  double alpha = c.get_real("alpha", 0), beta = c.get_real("beta", 0);
  bool nesterov = c.get_text("mode", "standard") == "nesterov";
  ValueId first = c.b.op("gt", {t.step, c.b.like(t.step, 0)});
  ValueId share = c.b.select(first, c.b.like(t.rate, beta), c.b.like(t.rate, 1));
  for (size_t i = 0; i < t.count; ++i) {
    ValueId x = c.in(2 + i), g = regularised(c, t, x, c.in(2 + t.count + i)), v = c.in(2 + 2 * t.count + i);
    v = c.b.add(times(c, v, alpha), c.b.mul(g, share));
    ValueId along = nesterov ? c.b.add(g, times(c, v, alpha)) : v;
    c.out(i, c.b.sub(x, c.b.mul(along, t.rate)));
    c.out(t.count + i, v);
  }
}

void gradient(NodeContext& c) {
  c.refuse(ErrorCode::unsupported_op, "gradients inside an ONNX graph are not supported",
           "train the model with `pelton train`");
}

}  // namespace

void add_training(ImportTable& table) {
  constexpr std::string_view domain = "ai.onnx.preview.training";
  table.add(domain, "Adagrad", adagrad);
  table.add(domain, "Adam", adam);
  table.add(domain, "Momentum", momentum);
  table.add(domain, "Gradient", gradient);
}

}  // namespace pelton::onnx
