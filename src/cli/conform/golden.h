// SPDX-License-Identifier: Apache-2.0
// Golden runs: NAME.golden.json beside NAME.onnx holds inputs as recipes and outputs as numbers that another
// implementation computed.
#pragma once

#include <string>
#include <vector>

#include "cli/conform/cases.h"

namespace pelton::cli {

struct GoldenOutput {
  std::string name;
  Dims dims;
  int64_t stride = 1;  // every stride-th element is stored
  std::vector<double> values;
  double tolerance = 0;  // largest difference allowed
};
struct GoldenRun {
  std::vector<std::pair<std::string, Tensor>> inputs;
  std::vector<GoldenOutput> outputs;
};
std::vector<GoldenRun> read_golden(const std::string& path);

// Runs a model on every golden run; empty if all agree, else the reason.
std::string run_golden(const std::string& model_path, const std::string& golden_path, const RunGraph& run);

}  // namespace pelton::cli
