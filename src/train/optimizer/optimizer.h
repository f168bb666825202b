// SPDX-License-Identifier: Apache-2.0
// Optimizers as graph builders. One is a row: its options and a function that appends the update of one
// parameter. Scalars that all parameters share (bias corrections) are written each time; common
// sub-expression elimination leaves one.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/schema.h"
#include "ir/builder.h"

namespace pelton::train {

using ir::Builder;
using ir::ValueId;

// The update of one parameter p under construction.
class Update {
 public:
  Update(Builder& builder, const data::Args& optimizer_options, std::string parameter)
      : b(builder), options(optimizer_options), name(std::move(parameter)) {}

  Builder& b;
  const data::Args& options;
  std::string name;     // of the parameter
  ValueId value, grad;  // grad is zero in a step that must change nothing
  ValueId finite;       // bool scalar: false in such a step; none: there is no such step
  ValueId lr;           // f32 scalar, the group's scale in it
  ValueId count;        // f64 scalar: number of this update, from 1
  double weight_decay = 0;
  ValueId direction;  // from OptimizerDef::prepare; none: not made yet

  // State of the parameter: slot "optimizer.WHAT.NAME", zeros at first.
  ValueId state(std::string_view what);
  void store(std::string_view what, ValueId next);

  double number(std::string_view option) const { return options.number(option); }
  ValueId scalar(double v) const { return b.scalar(DType::f32, v); }
  ValueId scaled(ValueId x, double factor) const { return b.mul(x, scalar(factor)); }
  // The factor, and `otherwise` in a step that must change nothing. What is zero or one there keeps the state
  // without a pass over it.
  ValueId guarded(double factor, double otherwise) const;
  // factor * old + part * fresh, where fresh is zero if nothing must change
  ValueId moved(ValueId old, double factor, ValueId fresh, double part) const {
    return b.add(b.mul(old, guarded(factor, 1)), scaled(fresh, part));
  }
  ValueId blend(double a, ValueId x, double c, ValueId y) const { return b.add(scaled(x, a), scaled(y, c)); }
  ValueId norm(ValueId x) const;               // f32 scalar, Euclidean
  ValueId decayed_grad() const;                // grad + weight_decay * p
  ValueId shrunk_value() const;                // p - lr * weight_decay * p
  ValueId bias_correction(double beta) const;  // f32 scalar 1 - beta^count
  // Result of SGD with momentum on direction `g` from `from`.
  ValueId momentum_step(ValueId from, ValueId g, double momentum, bool nesterov);
  // First and second moment stored, and m / (sqrt(v) + eps) with both corrected.
  ValueId adam_direction(ValueId g);

  // Next values of this parameter's slots, by slot index.
  std::map<uint32_t, ValueId> next;

 private:
  uint32_t slot(std::string_view what);
};

struct OptimizerDef {
  data::Schema schema;         // name, options; every one has lr and weight_decay
  ValueId (*update)(Update&);  // the parameter's next value
  // Before the updates, for all parameters together: what is cheaper at once. May be null.
  void (*prepare)(const std::vector<Update*>&) = nullptr;
};

const std::vector<OptimizerDef>& optimizers();
const OptimizerDef& find_optimizer(std::string_view name);  // bad_name with the nearest

OptimizerDef sgd_optimizer();
OptimizerDef adam_optimizer();
OptimizerDef adamw_optimizer();
OptimizerDef rmsprop_optimizer();
OptimizerDef lars_optimizer();
OptimizerDef lamb_optimizer();
OptimizerDef muon_optimizer();

// lr and weight_decay with these defaults, then `more`.
std::vector<data::OptionSpec> optimizer_options(double lr, double weight_decay,
                                                std::vector<data::OptionSpec> more);
data::OptionSpec adam_betas();
data::OptionSpec epsilon(double value);

}  // namespace pelton::train
