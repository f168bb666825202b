// SPDX-License-Identifier: Apache-2.0
// Evaluation, checkpoints and which values are the best.
#include <algorithm>

#include "train/evaluate.h"
#include "train/trainer_impl.h"

namespace pelton::train {

namespace {

bool larger_is_better(const std::string& metric) {
  return metric != "loss" && metric != "perplexity";
}

}  // namespace

Values Trainer::Impl::evaluate() {
  if (!eval_program) {
    StepOptions o = step;
    o.batch = recipe.data.eval_batch ? recipe.data.eval_batch : recipe.data.batch;
    o.forms = eval_forms;
    o.loss.soft = false;
    eval_program = std::make_unique<Program>(build_eval_step(*model, o), options.target, compile_options,
                                             registry, options.deterministic);
    eval_program->take_tactics(tactics);
  }
  // The state of the step itself; what only earlier programs had comes from what was kept of them.
  Program& of = active();
  for (const std::string& name : eval_program->state_names()) {
    const std::string average = cat("average.", name);
    if (of.has_state(average))
      eval_program->share_state(name, of, average);
    else if (auto kept = aside.find(average); kept != aside.end())
      eval_program->set_state(name, kept->second);
    else
      eval_program->share_state(name, of, name);
  }
  struct Sharing {
    Program& with;
    ~Sharing() { with.end_sharing(); }
  } sharing{*eval_program};
  return train::evaluate(*eval_program, *loaders.eval, classes, model->class_axis() == -1, done);
}

Checkpoint Trainer::Impl::snapshot() {
  Checkpoint c;
  c.state = whole_state();
  c.updates = done;
  c.epoch = done / epoch_updates;
  c.epoch_step = done % epoch_updates;
  c.data_state = data_state;
  c.model = model->name();
  c.recipe = recipe.text;
  c.best = best;
  c.has_best = has_best;
  c.since_best = since_best;
  for (const auto* p : {&current, &short_program, &eval_program})
    if (*p) tactics.merge((*p)->tactics());
  c.tactics = tactics;
  return c;
}

void Trainer::Impl::restore(const Checkpoint& c) {
  if (c.model != model->name())
    fail(ErrorCode::bad_name,
         cat("the checkpoint is of the model '", c.model, "', the recipe has '", model->name(), "'"),
         recipe.output);
  tactics = c.tactics;
  current->take_tactics(tactics);
  done = c.updates;
  program_for(done / epoch_updates, false);
  // A group that joins just here has no state of its own in the file.
  bool joins = std::any_of(recipe.groups.begin(), recipe.groups.end(),
                           [&](const ParameterGroup& g) { return g.from_epoch > 0; });
  for (const auto& [name, t] : current->all_state()) {
    if (name == "failed") continue;  // of steps that run ahead, whatever device wrote the file
    auto it = c.state.find(name);
    if (it == c.state.end()) {
      if (joins && (name.starts_with("optimizer.") || name.starts_with("average."))) continue;
      fail(ErrorCode::bad_name, cat("the checkpoint has no '", name, "'"), recipe.output,
           "resume with the recipe of the run");
    }
    if (it->second.dtype() != t.dtype() || it->second.dims() != t.dims())
      fail(ErrorCode::bad_shape,
           cat("'", name, "' is ", it->second.str(), " in the checkpoint, ", t.str(),
               " in the recipe's model"),
           recipe.output, "resume with the recipe of the run");
  }
  take_state(*current, c.state);
  for (const auto& [name, t] : c.state)
    if (!current->has_state(name)) aside[name] = t;
  loaders.train->restore(c.data_state);
  data_state = c.data_state;
  best = c.best;
  has_best = c.has_best;
  since_best = c.since_best;
}

std::string Trainer::Impl::best_metric() const {
  if (!recipe.best_metric.empty()) return recipe.best_metric;
  return classes && model->class_axis() != -1 ? "accuracy" : "loss";
}

bool Trainer::Impl::judge(const Values& values) {
  std::string metric = best_metric();
  for (const auto& [name, v] : values) {
    if (name != metric) continue;
    bool better = !has_best || (larger_is_better(metric) ? v > best : v < best);
    if (better) best = v, has_best = true, best_values = values;
    since_best = better ? 0 : since_best + 1;
    return better;
  }
  std::string names;
  for (const auto& [name, v] : values) append(names, cat(names.empty() ? "" : ", ", name));
  fail(ErrorCode::usage, cat("eval.best is '", metric, "', but the evaluation gives ", names), recipe.name);
}

}  // namespace pelton::train
