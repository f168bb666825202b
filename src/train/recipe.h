// SPDX-License-Identifier: Apache-2.0
// A training recipe as written down in TOML. Every section is a table of options (data/schema.h): the reader,
// --schema and --set use the same rows.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/spec.h"
#include "train/loss.h"
#include "train/step.h"

namespace pelton::train {

struct DataRecipe {
  std::optional<data::PipelineSpec> train, eval;
  std::vector<int64_t> synthetic;  // dims of a made-up sample, if nothing is read
  int64_t synthetic_count = 1024;
  std::vector<std::string> tokens, eval_tokens;  // token files
  std::string token_type;                        // u8, u16, i32, text
  int64_t token_stride = 0;                      // from window to window; 0: the model's length
  double holdout = 0;                            // fraction of train kept for evaluation
  int64_t batch = 32, eval_batch = 0;
  std::vector<double> mean, std;
  bool drop_last = false;
};

struct Recipe {
  std::string name = "recipe", folder;  // of the file
  std::string text;                     // the TOML with --set applied, as stored in the run
  uint64_t seed = 0;

  std::string model, onnx;  // one of them
  ir::Attrs model_options;
  std::string weights;             // file to start from
  std::vector<std::string> fresh;  // patterns of parameters that start anew whatever `weights` holds

  DataRecipe data;

  std::string precision = "fp32";
  std::vector<std::string> full_precision;  // layers that stay in f32
  LossScaling scaling;                      // on with fp16
  double epochs = 0;                        // one of them
  int64_t steps = 0;                        // updates
  LossOptions loss;
  int64_t accumulate = 1;
  double clip_norm = 0, average = 0, mixup = 0;
  double memory_budget_gib = 0;  // 0: none

  std::string optimizer = "sgd";
  data::Options optimizer_options;
  std::vector<ParameterGroup> groups;

  std::string schedule = "constant";
  data::Options schedule_options;

  double eval_every = 1;    // epochs
  std::string best_metric;  // "" : accuracy for classes, else loss
  int64_t patience = 0;     // evaluations without a better one; 0: no early stop

  double checkpoint_every = 1;  // epochs
  int64_t checkpoint_steps = 0, keep = 2;
  bool keep_best = true;
  std::string output;  // run folder; relative to the present folder
  bool tensorboard = true, html = true;
  int64_t log_every = 1;
};

// `sets`: "optimizer.lr=0.1", each overriding the file; the value is TOML, or text as it stands.
Recipe parse_recipe(const std::string& toml, const std::string& name, const std::string& folder,
                    const std::vector<std::string>& sets = {});
Recipe load_recipe(const std::string& path, const std::vector<std::string>& sets = {});
std::string recipe_schema_json();

// The schedule of the recipe for this many updates in all and in an epoch.
Schedule make_schedule(const Recipe& r, int64_t total, int64_t epoch_updates);

// Tables of the sections, by name; for --schema and the tests.
const std::vector<std::pair<std::string, data::Schema>>& recipe_sections();

}  // namespace pelton::train
