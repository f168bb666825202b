// SPDX-License-Identifier: Apache-2.0
// Plans that run on another machine than they were compiled for. The runtime can only take the first
// implementation of each node then; who can time them implements this (the compiler; register/retuner.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan.h"

namespace pelton::runtime {

struct Retuned {
  std::vector<Choice> choices;  // one a node of plan.graph.order()
  int64_t open = 0;             // nodes that have several ways and were not timed on this machine
  std::string note;             // what was timed and what came of it, for people
};

class Retuner {
 public:
  virtual ~Retuner() = default;
  // With what this machine timed before; takes no time.
  virtual Retuned known(const Plan& plan, const device::Target& target) const = 0;
  // Times what is not known until `stop` is set or the time for it is up, and keeps that for other processes.
  virtual Retuned time(const Plan& plan, const device::Target& target,
                       const std::atomic<bool>& stop) const = 0;
};

// Why the plan's choices do not hold on `target`: "the plan was compiled for cpu-avx2 and runs on
// cpu-avx512". Empty if they do. Another processor of the same kind matters only to choices that were timed.
std::string foreign(const Plan& plan, const device::Target& target);

}  // namespace pelton::runtime
