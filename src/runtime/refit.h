// SPDX-License-Identifier: Apache-2.0
// New weights for a plan, without compiling.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "runtime/plan.h"

namespace pelton::runtime {

// A copy of the plan with these constants replaced, by value name; everything else is shared. Refused are
// plans compiled frozen, names the plan does not have (weights that a pass folded into others lost theirs)
// and values of another type.
std::shared_ptr<const Plan> refit(const Plan& plan, const std::map<std::string, Tensor>& weights);

}  // namespace pelton::runtime
