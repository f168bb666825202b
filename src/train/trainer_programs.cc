// SPDX-License-Identifier: Apache-2.0
// The compiled steps of a run, and how state goes from one to the next.
#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "train/trainer_impl.h"
#include "train/weights.h"

namespace pelton::train {

void Trainer::Impl::report_memory(const StepGraph& graph) {
  const autodiff::Recomputation& r = graph.recomputed;
  auto mebibytes = [](int64_t bytes) {
    return static_cast<double>(std::llround(static_cast<double>(bytes) * 10 / (1 << 20))) / 10;
  };
  log_info("memory budget: ", r.values, " results are computed again (", std::llround(r.flops * 1e-6),
           " MFLOP a step), ", mebibytes(r.kept_bytes), " of ", mebibytes(r.kept_bytes_before), " MiB stay");
  if (r.kept_bytes > graph.activation_budget_bytes)
    log_warn("the memory budget leaves ", mebibytes(graph.activation_budget_bytes),
             " MiB for results of the forward pass, but ", mebibytes(r.kept_bytes),
             " MiB must stay: lower data.batch or raise step.memory_budget");
}

std::unique_ptr<Program> Trainer::Impl::make_program(StepOptions o, bool draw) {
  o.draw = draw;
  StepGraph graph = build_train_step(*model, o);
  if (o.memory_budget_bytes > 0) report_memory(graph);
  if (draw && !recipe.weights.empty()) {
    LoadReport report = load_weights(graph.graph, read_weights(recipe.weights), recipe.fresh, recipe.weights);
    log_info("weights: ", report.loaded, " loaded, ", report.fresh.size(), " fresh, ", report.unused.size(),
             " of the file unused");
  }
  auto made = std::make_unique<Program>(std::move(graph), options.target, compile_options, registry,
                                        options.deterministic);
  made->take_tactics(tactics);
  return made;
}

void Trainer::Impl::start() {
  try {
    current = make_program(step, true);
  } catch (const Error& e) {
    check_memory_message(e);
    throw;
  }
  // A moving average starts from the parameters as loaded.
  if (recipe.average > 0)
    for (const std::string& name : current->trained())
      current->set_state(cat("average.", name), current->state(name));
}

void Trainer::Impl::take_state(Program& p, const std::map<std::string, Tensor>& state) {
  for (const auto& [name, t] : state)
    if (p.has_state(name)) p.set_state(name, t);
  for (const std::string& name : p.trained())
    if (std::string average = cat("average.", name); p.has_state(average) && !state.count(average))
      p.set_state(average, p.state(name));
}

void Trainer::Impl::hand_over(const Program& from, Program& to) {
  for (const auto& [name, t] : from.all_state())
    if (to.has_state(name)) to.set_state(name, t);
}

Program& Trainer::Impl::program_for(int64_t epoch, bool masked) {
  int64_t phase = 0;
  for (const ParameterGroup& g : recipe.groups)
    if (g.from_epoch <= epoch) phase = std::max(phase, g.from_epoch);
  if (phase != current_phase) {
    store_aside();
    step.epoch = phase;
    step.masked = false;
    current = make_program(step, false);
    take_state(*current, aside);
    short_program.reset();
    current_phase = phase;
    last_was_masked = false;
  }
  if (std::unique_ptr<Program>& wanted = masked ? short_program : current; !wanted) {
    StepOptions o = step;
    o.masked = masked;
    wanted = make_program(o, false);
  }
  if (masked != last_was_masked) {
    hand_over(masked ? *current : *short_program, masked ? *short_program : *current);
    last_was_masked = masked;
  }
  return masked ? *short_program : *current;
}

bool Trainer::Impl::drop_other() {
  std::unique_ptr<Program>& other = last_was_masked ? current : short_program;
  if (!other) return false;
  tactics.merge(other->tactics());
  other.reset();
  log_info(
      "the steps of whole and of short batches do not fit beside each other: each is made when it is needed");
  return true;
}

std::map<std::string, Tensor> Trainer::Impl::whole_state() {
  std::map<std::string, Tensor> all = active().all_state();
  all.insert(aside.begin(), aside.end());
  return all;
}

}  // namespace pelton::train
