// SPDX-License-Identifier: Apache-2.0
// New weights for a plan, without compiling.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "runtime/plan.h"

namespace pelton::runtime {

// A copy of the plan with these constants replaced, by value name; everything else is shared. A weight that
// the model holds twice, perhaps transposed once, is in the plan once, under both names: a value of either is
// one of both, and where both are given they have to agree. f32 is rounded where the plan holds 16 bits.
// Refused are plans compiled frozen, names the plan does not have (weights of whose values a pass made
// others, or sizes, lost theirs) and values of another type.
std::shared_ptr<const Plan> refit(const Plan& plan, const std::map<std::string, Tensor>& weights);

}  // namespace pelton::runtime
