// SPDX-License-Identifier: Apache-2.0
// Compilation that measures: choices timed on the machine, values seen on samples.
#pragma once

#include <string>

#include "register/model.h"

namespace pelton {

struct TuningOptions {
  // Choices by measurement: those in `tactics_file` (empty: the machine's own cache) are taken, and what it
  // lacks is timed for at most this long and added. Without a budget and a file nothing is looked up.
  double time_budget_seconds = 0;
  std::string tactics_file;
  // Samples for int8 and for `max_drop` (register/samples.h); percent below 0: any drop.
  std::string calibrate_folder;
  std::string calibration = "percentile";
  double max_drop = -1;
};

// Where this machine keeps its timings; empty, with `why`, if it has no cache folder.
std::string timings_file(std::string* why = nullptr);

runtime::Plan compile_model(Model model, const device::Target& target, const CompileOptions& options,
                            const TuningOptions& tuning);

}  // namespace pelton
