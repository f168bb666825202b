// SPDX-License-Identifier: Apache-2.0
// A plan held against the reference interpreter: each kernel alone on the interpreter's inputs, then every
// value of a run that the source has under the same name. The plan is not changed.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ir/eval.h"
#include "runtime/executable.h"

namespace pelton::cli {

// Largest difference, absolute and over the largest reference value.
struct Gap {
  double abs = 0, rel = 0;
  std::string broken;  // NaN, infinity or shape that the reference does not have
};

struct VerifyRow {
  std::string what, implementation;
  Gap error;
  bool ok = true;
};

struct VerifyTolerance {
  // Largest error over the largest reference value; `levels`: of values that a quantisation reaches, where a
  // number near the border of two levels may land on either without a fault.
  double alone, cumulative, levels;
};
struct VerifyReport {
  std::vector<VerifyRow> groups, values;
  std::vector<std::pair<std::string, std::string>>
      fused;  // value without a place of its own, the group it is in
};

// `source`: the graph as imported, the reference of the run; null: the plan's own graph is.
VerifyReport verify_plan(const runtime::Executable& executable, const ir::Graph* source,
                         const std::vector<ir::HostValue>& inputs, const VerifyTolerance& tolerance);

}  // namespace pelton::cli
