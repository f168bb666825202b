// SPDX-License-Identifier: Apache-2.0
#include "train/optimizer/optimizer.h"

#include "base/nearest.h"

namespace pelton::train {

uint32_t Update::slot(std::string_view what) {
  ir::Graph& g = b.graph();
  std::string full = cat("optimizer.", what, ".", name);
  for (uint32_t i = 0; i < g.slots.size(); ++i)
    if (g.slots[i].name == full) return i;
  ir::Slot s;
  s.name = std::move(full);
  s.kind = ir::SlotKind::optimizer;
  s.type = ir::Type::tensor(DType::f32, b.shape(value));
  g.add_slot(std::move(s));
  return static_cast<uint32_t>(g.slots.size() - 1);
}

ValueId Update::state(std::string_view what) {
  uint32_t i = slot(what);
  return b.graph().slots[i].old_value;
}

void Update::store(std::string_view what, ValueId v) {
  next[slot(what)] = v;
}

ValueId Update::norm(ValueId x) const {
  ir::Ints axes;
  for (int64_t a = 0; a < b.rank(x); ++a) axes.push_back(a);
  return b.op("sqrt", {b.reduce("reduce_sum", b.op("square", {x}), axes, false)});
}

ValueId Update::guarded(double factor, double otherwise) const {
  return finite ? b.select(finite, scalar(factor), scalar(otherwise)) : scalar(factor);
}

ValueId Update::decayed_grad() const {
  return weight_decay == 0 ? grad : b.add(grad, b.mul(value, guarded(weight_decay, 0)));
}

ValueId Update::shrunk_value() const {
  return weight_decay == 0 ? value : b.sub(value, b.mul(value, scaled(lr, weight_decay)));
}

ValueId Update::bias_correction(double beta) const {
  ValueId power = b.op("pow", {b.scalar(DType::f64, beta), count});
  return b.cast(b.sub(b.scalar(DType::f64, 1), power), DType::f32);
}

ValueId Update::momentum_step(ValueId from, ValueId g, double momentum, bool nesterov) {
  if (momentum != 0) {
    ValueId buffer = b.add(b.mul(state("momentum"), guarded(momentum, 1)), g);
    store("momentum", buffer);
    g = nesterov ? b.add(g, scaled(buffer, momentum)) : buffer;
  }
  return b.sub(from, b.mul(g, lr));
}

ValueId Update::adam_direction(ValueId g) {
  const std::vector<double>& betas = options.numbers("betas");
  if (betas.size() != 2 || !(betas[0] >= 0 && betas[0] < 1) || !(betas[1] >= 0 && betas[1] < 1))
    fail(ErrorCode::usage, cat("option 'betas' is ", betas, ", not two numbers in [0, 1)"), options.where());
  ValueId m = moved(state("exp_avg"), betas[0], g, 1 - betas[0]);
  ValueId v = moved(state("exp_avg_sq"), betas[1], b.op("square", {g}), 1 - betas[1]);
  store("exp_avg", m);
  store("exp_avg_sq", v);
  ValueId root = b.div(b.op("sqrt", {v}), b.op("sqrt", {bias_correction(betas[1])}));
  ValueId corrected = b.div(m, bias_correction(betas[0]));
  return b.div(corrected, b.add(root, scalar(number("eps"))));
}

const std::vector<OptimizerDef>& optimizers() {
  static const std::vector<OptimizerDef> all = {sgd_optimizer(),     adam_optimizer(), adamw_optimizer(),
                                                rmsprop_optimizer(), lars_optimizer(), lamb_optimizer(),
                                                muon_optimizer()};
  return all;
}

const OptimizerDef& find_optimizer(std::string_view name) {
  std::vector<std::string> names;
  std::string all;
  for (const OptimizerDef& o : optimizers()) {
    if (o.schema.name == name) return o;
    names.push_back(o.schema.name);
    append(all, cat(all.empty() ? "" : ", ", o.schema.name));
  }
  std::string near = nearest(name, names);
  fail(ErrorCode::bad_name, cat("there is no optimizer '", name, "'"), "",
       near.empty() ? cat("the optimizers are ", all) : cat("did you mean '", near, "'?"));
}

std::vector<data::OptionSpec> optimizer_options(double lr, double weight_decay,
                                                std::vector<data::OptionSpec> more) {
  using T = data::OptionType;
  std::vector<data::OptionSpec> out = {
      {"lr", T::number, lr, "base learning rate", 0},
      {"weight_decay", T::number, weight_decay, "of groups that name none", 0}};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

data::OptionSpec adam_betas() {
  return {"betas", data::OptionType::numbers, std::vector<double>{0.9, 0.999}, "decay of the two moments"};
}
data::OptionSpec epsilon(double value) {
  return {"eps", data::OptionType::number, value, "added to the root", 0};
}

}  // namespace pelton::train
