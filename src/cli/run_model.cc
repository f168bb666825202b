// SPDX-License-Identifier: Apache-2.0
#include "cli/run_model.h"

#include "base/file.h"
#include "ir/verify.h"
#include "train/trainer.h"

namespace pelton::cli {

Model model_of(const std::string& path, const CompileOptions& options) {
  if (!folder_exists(path)) return load_model(path, options);
  if (!train::is_run_folder(path))
    fail(ErrorCode::bad_format, "the folder holds no training run", path,
         "name a model file, or the folder of a run");
  train::TrainedModel trained = train::trained_model(path);
  Model model;
  model.format = "run";
  model.name = trained.name;
  model.graph = std::move(trained.graph);
  ir::verify(model.graph, "trained run");
  return model;
}

}  // namespace pelton::cli
