// SPDX-License-Identifier: Apache-2.0
// What a plan for a GPU carries so that loading it need not compile and time (device/artifacts.h).
#pragma once

#include "runtime/plan.h"

namespace pelton {

struct ArtifactReport {
  // Different generated ones that a plan may need. Beyond, groups are compiled in a form that those of other
  // sizes share; only what has no such form can still exceed it.
  static constexpr int64_t kMostKernels = 64;
  int64_t kernels = 0, choices = 0;  // of the plan
  int64_t library_plans = 0;         // of cuDNN
  bool timed = false;                // on the target itself; false: it is not here, so choices stay open
  std::string left;                  // why kernels are left to be compiled when the plan is loaded; or empty
};
// For the plan's optimum (sizes that it leaves open: the least). Plans for the CPU have none. `target` is the
// GPU, or one that is named and not present.
ArtifactReport make_artifacts(runtime::Plan& plan, const device::Target& target);

}  // namespace pelton
