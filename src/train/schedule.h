// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules as part of the step's graph: the rate is a function of the number of updates done,
// which is a state slot, so no host value changes from step to step.
#pragma once

#include <string>
#include <vector>

#include "data/schema.h"
#include "ir/builder.h"

namespace pelton::train {

// Steps are updates. Names: constant, step, cosine, one_cycle, polynomial.
struct Schedule {
  std::string name = "constant";
  double lr = 0.1;    // base; one_cycle: the peak
  int64_t total = 1;  // updates of the whole run
  int64_t warmup =
      0;  // updates of a linear rise before the schedule starts, which then ends at `total` all the same
  double warmup_from = 0;   // fraction of the base rate at update 0 of the rise
  double end = 0;           // cosine, polynomial: fraction of the base rate at the end
  double power = 1;         // polynomial
  double gamma = 0.1;       // step: factor
  std::vector<int64_t> at;  // step: updates at which the factor applies
  double rise = 0.3;        // one_cycle: fraction of the run that rises
  double start = 0.04;      // one_cycle: fraction of the peak at the start
  double final = 4e-6;      // one_cycle: fraction of the peak at the end
};

// f32 scalar: the rate of the update that follows `done` (i64 scalar) finished ones.
ir::ValueId schedule_rate(ir::Builder& b, const Schedule& s, ir::ValueId done);
// The same by plain arithmetic, for curves, dry runs and tests.
double schedule_rate(const Schedule& s, int64_t done);

}  // namespace pelton::train
