// SPDX-License-Identifier: Apache-2.0
// ONNX backend-test folders: model.onnx, test_data_set_N/{input,output}_M.pb and, where a case has its own
// tolerances, data.json.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/conform/compare.h"
#include "onnx/import/import.h"

namespace pelton::cli {

struct Case {
  std::string name, folder;
  Tolerance tolerance;
};
// Every case in or below the folders, by name. A folder without any is not_found.
std::vector<Case> find_cases(const std::vector<std::string>& folders);

// Runs a graph on values for its inputs.
using RunGraph =
    std::function<std::vector<ir::HostValue>(const ir::Graph&, const std::vector<ir::HostValue>&)>;

struct CaseOptions {
  bool symbolic = false;      // dimensions of inputs are symbols, but for those an op needs as numbers
  bool round_trip = false;    // the graph is written as ONNX and read back first
  std::string export_folder;  // with round_trip: where NAME.onnx is kept; empty: nowhere
};
// Empty if every data set of the case agrees, else the reason in one line.
std::string run_case(const Case& one, const RunGraph& run, const CaseOptions& options = {});

}  // namespace pelton::cli
