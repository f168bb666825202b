// SPDX-License-Identifier: Apache-2.0
// What a trainer holds and the operations that its runs are made of: trainer_setup.cc, trainer_programs.cc,
// trainer_updates.cc, trainer_memory.cc, trainer_results.cc; a run is trainer.cc.
#pragma once

#include <deque>

#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/loader.h"
#include "train/program.h"
#include "train/trainer.h"
#include "train/weights.h"

namespace pelton::train {

struct Trainer::Impl {
  class RunLoop;

  // An update that was started and whose results nobody has looked at.
  struct OnWay {
    int64_t update;
    StepInputs inputs;
  };

  // From the recipe.
  Impl(Recipe r, TrainerOptions o, const backend::Registry& reg);
  void prepare_data();
  // A stage that names the GPU never runs elsewhere.
  void check_devices(const data::PipelineSpec& stages) const;

  static void report_memory(const StepGraph& graph);
  // Initial values are drawn once; later programs get theirs from the one before.
  std::unique_ptr<Program> make_program(StepOptions o, bool draw);
  void start();
  // Parameters that train only from now on have no state yet: zeros for the optimizer, themselves for the
  // average.
  static void take_state(Program& p, const std::map<std::string, Tensor>& state);
  // Copies what both have.
  static void hand_over(const Program& from, Program& to);
  // The program for a batch: short ones run masked, unfrozen groups change the graph.
  Program& program_for(int64_t epoch, bool masked);
  Program& active() { return last_was_masked ? *short_program : *current; }
  // Gives back the memory of the program that batches do not go to now; it is made anew when they do. False
  // if there is none.
  bool drop_other();
  // State of slots that a later program may have again.
  void store_aside() {
    for (const auto& [name, t] : active().all_state()) aside[name] = t;
  }
  std::map<std::string, Tensor> whole_state();

  // Throws what to change if memory was not enough.
  void check_memory_message(const Error& e);
  std::string memory_advice();
  StepInputs step_inputs(const TrainBatch& b, bool masked) const;
  ir::RandomKey key() const { return {recipe.seed, static_cast<uint64_t>(done)}; }

  // Results of an update, some time after it was started.
  struct Finished {
    int64_t update = 0;  // number of updates with it
    Values values;
  };

  // Starts the next update; finish_update() gives the results of the oldest that is on its way.
  void start_update(const TrainBatch& b);
  bool needs_mask(const TrainBatch& b) const { return b.valid < recipe.data.batch; }
  // Whether the next batch goes to the program that the updates on their way run in, and leaves room there.
  bool may_start(const TrainBatch& b);
  Finished finish_update();
  // Fails if loss or gradients of an update are not finite.
  void check_finite(const OnWay& u, const std::map<std::string, Tensor>& out);

  Values evaluate();
  Checkpoint snapshot();
  void restore(const Checkpoint& c);

  // Of the device where there is one, at its most; else of this process.
  int64_t memory_bytes();

  std::string best_metric() const;
  // True if these values are the best so far.
  bool judge(const Values& values);

  Recipe recipe;
  TrainerOptions options;
  const backend::Registry& registry;
  std::unique_ptr<Trainable> model;
  StepOptions step;
  compiler::Options compile_options;
  Loaders loaders;
  std::vector<std::optional<InputForm>> eval_forms;
  int64_t classes = 0, epoch_updates = 0, updates = 0, done = 0;
  std::unique_ptr<Program> current, short_program, eval_program;
  int64_t current_phase = 0;
  bool last_was_masked = false;
  std::map<std::string, Tensor> aside;
  double best = 0;
  bool has_best = false;
  int64_t since_best = 0;
  Values best_values;
  std::map<std::string, std::string> tactics;  // that the run has chosen by timing
  std::string data_state;                      // after the last update that was started
  std::deque<OnWay> on_way;
};

}  // namespace pelton::train
