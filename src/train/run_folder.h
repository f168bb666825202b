// SPDX-License-Identifier: Apache-2.0
// The folder of a run: recipe.toml, run.json, metrics.jsonl, event files, report.html, checkpoints/.
#pragma once

#include <string>
#include <vector>

#include "train/recipe.h"

namespace pelton::train {

class RunFolder {
 public:
  // Makes it. A folder that holds a run already is refused unless `resume`, which refuses one that holds
  // none.
  RunFolder(std::string path, bool resume);
  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  std::string html() const { return path_ + "/report.html"; }
  // Writes recipe.toml and run.json: what is needed to make the model again.
  void describe(const Recipe& recipe, const std::string& model,
                const std::vector<std::string>& classes) const;

 private:
  std::string path_;
};

// The recipe that a run was made with, its paths relative to where it stood; output goes to this folder.
Recipe run_recipe(const std::string& folder, const std::vector<std::string>& sets = {});

}  // namespace pelton::train
