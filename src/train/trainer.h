// SPDX-License-Identifier: Apache-2.0
// Runs a recipe: batches through the compiled step, evaluation, checkpoints, reports.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "backend/kernel.h"
#include "device/target.h"
#include "train/recipe.h"
#include "train/report.h"

namespace pelton::train {

// After an update, or an evaluation.
struct Moment {
  std::string kind;                 // "train", "eval"
  int64_t update = 0, updates = 0;  // done, of the whole run
  double epoch = 0;
  Values values;  // loss, lr, ...; accuracy, ...
  double samples_per_s = 0, seconds_left = 0;
  int64_t memory_bytes = 0;
};

struct TrainerOptions {
  device::Target target;
  bool resume = false;  // go on from the newest checkpoint of the run folder
  bool deterministic =
      false;  // nothing is chosen by timing: the same bits in every process on the same device
  bool compile_only = false;  // a dry run compiles for `target`, which need not be here, and runs nothing
  std::function<void(const Moment&)> on_moment;
};

struct RunResult {
  int64_t updates = 0;
  double epochs = 0, seconds = 0, samples_per_s = 0;
  Values last, best;            // of the last evaluation, and of the best
  std::string folder, stopped;  // why it ended: "done", "early", "interrupted"
};

struct DryRun {
  std::string model;
  int64_t parameters = 0, trained = 0;  // elements
  int64_t samples = 0, epoch_updates = 0, updates = 0;
  int64_t nodes = 0, state_bytes = 0, memory_bytes = 0;
  int64_t arena_bytes = 0, scratch_bytes = 0;  // of memory_bytes: results of a step; of them, of one kernel
  double flops = 0;                            // of a step
  double step_seconds = 0;                     // median, measured on one batch
  double resident_seconds = 0;  // likewise, where the batch lies on the device already; 0 on the CPU
  double step_cpu_seconds = 0;  // processor time of all threads, likewise
  std::map<std::string, int64_t> implementations;
  std::map<std::string, double> node_seconds;  // of one step, by implementation and op
  std::string graph;                           // text of the compiled step
};

class Trainer {
 public:
  Trainer(Recipe recipe, TrainerOptions options, const backend::Registry& registry);
  ~Trainer();
  DryRun dry_run();
  // Saves first when the process is asked to end, then throws `cancelled`.
  RunResult run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What a run folder holds, as a graph for inference: the newest checkpoint (or the best), its moving average
// where there is one.
struct TrainedModel {
  ir::Graph graph;  // weights are constants
  std::string name;
};
bool is_run_folder(const std::string& path);
TrainedModel trained_model(const std::string& folder);
// Its weights and statistics alone, by name.
std::map<std::string, Tensor> trained_weights(const std::string& path);

}  // namespace pelton::train
