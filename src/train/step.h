// SPDX-License-Identifier: Apache-2.0
// The training step as one graph: forward, loss, backward, clipping, optimizer, moving average, schedule and
// metrics, with all state in slots. The same for evaluation.
//
// Slots by name: parameters and statistics as the model names them; "optimizer.WHAT.NAME"; "average.NAME";
// "updates" (i64, finished updates); "loss_scale", "loss_scale.good" (steps since it changed). A step whose
// loss is not finite changes no slot, one whose scaled gradients overflow the latter two.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autodiff/recompute.h"
#include "data/spec.h"
#include "train/loss.h"
#include "train/model.h"
#include "train/optimizer/optimizer.h"
#include "train/schedule.h"

namespace pelton::train {

// What the data gives for an input of the model, where it is not that already.
struct InputForm {
  DType dtype = DType::f32;
  Dims sample;                    // dims of a sample as the data gives it
  std::vector<double> mean, std;  // of each channel, of values divided by 255 where they are u8
  // The pipeline's part for the graph (data::lower_training), which comes before all that: the data gives u8
  // pictures or sounds, and the step takes "epoch" and "indices" for its draws.
  std::optional<data::PipelineSpec> stages;
};

// Parameters whose names match a pattern ("*" stands for any text) share these settings; the first matching
// group counts.
struct ParameterGroup {
  std::vector<std::string> match;
  double lr_scale = 1;
  std::optional<double> weight_decay;
  bool frozen = false;
  int64_t from_epoch = 0;  // frozen before it
};
bool matches(std::string_view pattern, std::string_view name);

// The loss is multiplied by a scale before the backward pass, so that small gradients survive in f16. A step
// whose gradients overflow changes nothing but the scale, which halves; it doubles after `interval` steps
// without one. At the floor an overflow is an error.
struct LossScaling {
  bool on = false;
  double initial = 65536, floor = 1, ceiling = 16777216;
  int64_t interval = 2000;
};

struct StepOptions {
  int64_t batch = 1;       // samples of a step, all micro-batches together
  int64_t accumulate = 1;  // micro-batches
  bool masked = false;     // takes "valid": rows that count, for short batches
  uint64_t seed = 0;
  bool draw = true;  // initial values of parameters are drawn
  LossOptions loss;
  std::string optimizer = "sgd";
  data::Options optimizer_options;
  Schedule schedule;
  double clip_norm = 0;             // of all gradients together; 0: none
  double average = 0;               // decay of the moving average of parameters; 0: none
  int64_t memory_budget_bytes = 0;  // above it results are computed again for the backward pass; 0: never
  int64_t class_multiple = 1;       // large heads are grown to it (pad_classes.h)
  std::vector<ParameterGroup> groups;
  int64_t epoch = 0;  // decides which groups are frozen
  LossScaling scaling;
  // Steps are enqueued before the results of earlier ones are looked at: once one has failed, none changes
  // state any more (slot "failed").
  bool ahead = false;
  bool mix = false;  // takes "mix": the batch is blended with itself reversed by this weight
  std::vector<std::optional<InputForm>> forms;  // one a model input; none: as the model declares it
  bool accuracy = false;                        // counts right answers in training too
};

// Nodes that update state are named below it; their arithmetic stays in f32
// (compiler::Options::full_precision).
inline constexpr const char* kUpdate = "update";
// So are those of a pipeline's stages, with the same arithmetic.
inline constexpr const char* kStages = "stages";

struct StepGraph {
  ir::Graph graph;
  std::vector<std::string> inputs, outputs;  // names in graph order
  std::vector<std::string> trained;          // parameters that this step changes
  autodiff::Recomputation recomputed;        // where there is a memory budget
  int64_t activation_budget_bytes = 0;       // what the budget leaves for results kept between the passes
};

// Inputs: the model's, then "epoch" (i64 []) and "indices" (i64 [batch], of the samples) where a form has
// stages, then "label" or "target", then "valid" and "mix" where asked for.
// Outputs: loss (mean), count, lr; grad_norm where clipped or scaled; loss_scale where scaled (as it was in
// this step); correct where asked for.
StepGraph build_train_step(const Trainable& model, const StepOptions& o);
// Outputs: loss_sum, count; with classes: correct, top5, predictions [M], labels [M].
StepGraph build_eval_step(const Trainable& model, const StepOptions& o);
// The model alone, in eval mode at batch "N", taking what the data gives (`forms`): what a trained run
// becomes. One output.
ir::Graph build_inference(const Trainable& model, const StepOptions& o);

}  // namespace pelton::train
