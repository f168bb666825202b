// SPDX-License-Identifier: Apache-2.0
#include "compiler/retune.h"

#include "base/log.h"
#include "compiler/timing.h"
#include "compiler/tune.h"
#include "runtime/executable.h"

namespace pelton::compiler {

PlanRetuner::PlanRetuner(const backend::Registry& registry, double seconds, std::function<Tactics()> load,
                         std::function<void(const Tactics&)> keep)
    : registry_(registry), seconds_(seconds), load_(std::move(load)), keep_(std::move(keep)) {}

Tactics PlanRetuner::loaded() const {
  try {
    return load_();
  } catch (const Error& e) {
    log_warn(cat("timings of this machine are not used: ", e.what()));
    return {};
  }
}

runtime::Retuned PlanRetuner::choose(const runtime::Plan& plan, const device::Target& target,
                                     Tactics& tactics, double seconds, const std::atomic<bool>* stop) const {
  runtime::Retuned r;
  r.choices = runtime::choose_all(plan.graph, registry_, target);
  // Kernels of a device are timed when they are prepared; whether they were before, its own cache knows.
  if (target.kind != device::Kind::cpu) {
    r.open = 1;
    return r;
  }
  Tuner tuner(tactics, seconds, registry_, target, stop);
  r.open = tuner.choose_nodes(plan.graph, plan.optimum, r.choices);
  for (const std::string& note : tuner.notes()) append(r.note, cat(r.note.empty() ? "" : "; ", note));
  return r;
}

runtime::Retuned PlanRetuner::known(const runtime::Plan& plan, const device::Target& target) const {
  Tactics tactics = loaded();
  return choose(plan, target, tactics, 0, nullptr);
}

runtime::Retuned PlanRetuner::time(const runtime::Plan& plan, const device::Target& target,
                                   const std::atomic<bool>& stop) const {
  if (target.kind != device::Kind::cpu) {
    Tactics none;
    runtime::Retuned r = choose(plan, target, none, 0, nullptr);
    auto there = std::make_shared<runtime::Plan>(plan);
    there->target = target;  // so that nothing is put off
    there->choices = r.choices;
    const auto executable = runtime::Executable::create(there, registry_, target);
    std::vector<Dims> dims;
    const SymbolValues sizes = sizes_of(plan.graph, plan.optimum);
    for (ir::ValueId v : plan.graph.inputs) {
      const ir::Type& t = plan.graph.type(v);
      dims.push_back(t.is_tensor() ? eval(t.shape, sizes) : Dims{});
    }
    executable->prepare(dims);
    r.open = 0;
    r.note = cat("kernels were timed on ", target.product.empty() ? target.name : target.product);
    return r;
  }
  Tactics tactics = loaded();
  runtime::Retuned r = choose(plan, target, tactics, seconds_, &stop);
  if (tactics.changed()) try {
      keep_(tactics);
    } catch (const Error& e) {
      log_warn(cat("timings of this machine are not kept: ", e.what()));
    }
  return r;
}

}  // namespace pelton::compiler
