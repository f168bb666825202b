// SPDX-License-Identifier: Apache-2.0
// Training steps of the cases of tests/train/expect/curves.json: weights and batches by formula.
#pragma once

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "register/registry.h"
#include "train/formula.h"
#include "train/program.h"

namespace pelton::test {

class FormulaStep {
 public:
  // `optimizer`: its name and options. `precision`: as recipes name it.
  FormulaStep(const nlohmann::json& c, const nlohmann::json& optimizer, const std::string& precision = "fp32",
              const device::Target& target = device::detect_cpu(0))
      : name_(c["model"]) {
    ir::Attrs options;
    for (const auto& [key, v] : c["options"].items()) {
      if (v.is_array())
        options[key] = v.get<ir::Ints>();
      else
        options[key] = v.get<int64_t>();
    }
    if (name_ == "gpt2" || name_ == "mobilenet_v2") options["dropout"] = 0.0;
    train::StepOptions o;
    o.batch = c["batch"];
    o.draw = false;
    for (const auto& [key, v] : optimizer.items()) {
      if (key == "name")
        o.optimizer = v.get<std::string>();
      else
        o.optimizer_options[key] = v.get<double>();
    }
    o.schedule.lr = optimizer["lr"];
    o.scaling.on = precision == "fp16";
    train::StepGraph step = train::build_train_step(*train::named_model(name_, options), o);
    for (ir::Slot& s : step.graph.slots)
      if (s.kind == ir::SlotKind::parameter || s.kind == ir::SlotKind::statistic)
        s.initial = formula_parameter(s.name, *as_dims(s.type.shape));
    for (ir::ValueId v : step.graph.inputs) types_.push_back(step.graph.type(v));
    compiler::Options how;
    how.precision = precision;
    how.full_precision = {train::kUpdate};
    program_ = std::make_unique<train::Program>(std::move(step), target, how, registry());
  }

  // One update on batch `k`, whose samples are taken in `order` if there is one; returns the loss.
  double update(size_t k, const std::vector<int64_t>& order = {}) {
    const int64_t high = name_ == "gpt2" ? 99 : name_ == "mlp" ? 3 : 10;
    std::vector<Tensor> in;
    for (size_t i = 0; i < types_.size(); ++i) {
      const std::string key = cat(program_->inputs()[i], " ", k);
      const Dims dims = *as_dims(types_[i].shape);
      const Tensor t = types_[i].dtype == DType::i64 ? tokens(key, dims, high) : uniform_tensor(key, dims);
      in.push_back(order.empty() ? t : rows(t, order));
    }
    return program_->run(in, {}).at("loss").get_double(0);
  }

  const train::Program& program() const { return *program_; }

 private:
  static Tensor rows(const Tensor& t, const std::vector<int64_t>& order) {
    Tensor out(t.dtype(), t.dims());
    const int64_t bytes = t.bytes() / static_cast<int64_t>(order.size());
    auto* to = static_cast<std::byte*>(out.mutable_data());
    for (int64_t row : order)
      to = std::copy_n(static_cast<const std::byte*>(t.data()) + row * bytes, bytes, to);
    return out;
  }

  std::string name_;
  std::vector<ir::Type> types_;
  std::unique_ptr<train::Program> program_;
};

}  // namespace pelton::test
