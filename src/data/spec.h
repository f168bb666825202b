// SPDX-License-Identifier: Apache-2.0
// A pipeline as written down: in a TOML file, or built in C++.
//
//   PipelineSpec p;
//   p.source = {"folder", {{"path", "images"}, {"shuffle", true}}};
//   p.stages = {{"decode", {}}, {"random_resized_crop", {{"size", 224}}}, {"normalize", {}}};
#pragma once

#include <string>
#include <vector>

#include "data/param.h"

namespace pelton::data {

struct SourceSpec {
  std::string kind;
  Options options;                // besides the kind's own: shuffle
  std::vector<SourceSpec> parts;  // kinds concat and mix
  bool shuffle = false;
  int64_t shuffle_window = 0;  // samples that are shuffled together; 0: all
};

struct StageSpec {
  std::string op;
  Options options;
  std::string where;  // for messages: "flowers.toml line 7"
  int number = -1;    // of its draws; -1: its place among the stages
};

struct PipelineSpec {
  int version = 1;
  uint64_t seed = 0;
  std::string match = "none";  // none, pillow, torchvision, opencv
  SourceSpec source;
  std::vector<StageSpec> stages;
  std::string bad_samples = "replace";  // skip, replace, raise, mark
  int64_t bucket = 0;                   // batches whose samples are sorted by size together; 0: off
  double bad_limit = 0.1;               // fraction of bad samples at which the run stops
  std::string folder;                   // relative paths start here
  std::string name = "pipeline";        // for messages: the file
};

// bad_format, usage or bad_name errors with the line; unknown keys are refused with the nearest right one.
PipelineSpec parse_pipeline(const std::string& toml, const std::string& name, const std::string& folder);
PipelineSpec load_pipeline(const std::string& path);
// JSON Schema (2020-12) of the TOML form.
std::string pipeline_schema_json();

}  // namespace pelton::data
