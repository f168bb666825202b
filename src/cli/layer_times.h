// SPDX-License-Identifier: Apache-2.0
// Time of every node of a plan, set against what the machine can do.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "runtime/executable.h"

namespace pelton::cli {

struct LayerTime {
  std::string node, op, implementation;
  int64_t calls = 0;            // a run
  double ms = 0;                // a run, median over runs
  double gflop = 0, gbyte = 0;  // a run: arithmetic, operands and results
  double roofline = 0;          // time the machine would need at least, over `ms`; 0: no estimate
};

struct LayerTimes {
  std::vector<LayerTime> layers;  // in order
  double total_ms = 0;
  double peak_gflops = 0, peak_gbytes = 0;  // a second, of this machine and thread count, measured now
};

// `run` runs the plan once with the options it is given.
LayerTimes measure_layers(const runtime::Executable& executable,
                          const std::function<void(const runtime::RunOptions&)>& run);
void print_layers(const LayerTimes& times);
nlohmann::json layers_json(const LayerTimes& times);

}  // namespace pelton::cli
