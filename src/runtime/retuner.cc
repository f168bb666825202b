// SPDX-License-Identifier: Apache-2.0
#include "runtime/retuner.h"

#include <algorithm>

namespace pelton::runtime {

std::string foreign(const Plan& plan, const device::Target& target) {
  const device::Target& from = plan.target;
  std::string made = from.name, here = target.name;
  const bool cpu = from.kind == device::Kind::cpu;
  if (from.kind == target.kind && (cpu ? from.isa == target.isa : from.sm == target.sm)) {
    const bool timed = !cpu || std::any_of(plan.choices.begin(), plan.choices.end(),
                                           [](const Choice& c) { return c.seconds > 0; });
    if (!timed || from.product.empty() || target.product.empty() || from.product == target.product) return {};
    made = from.product;
    here = target.product;
  }
  return cat("the plan was compiled for ", made, " and runs on ", here);
}

}  // namespace pelton::runtime
