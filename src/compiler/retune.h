// SPDX-License-Identifier: Apache-2.0
// The runtime's Retuner by means of the tuner: choices for plans that were compiled on another machine.
#pragma once

#include <functional>

#include "compiler/tactics.h"
#include "runtime/retuner.h"

namespace pelton::compiler {

class PlanRetuner final : public runtime::Retuner {
 public:
  // `load` gives the timings that this machine has, `keep` adds some to them; either may throw, which loses
  // timings and nothing else. At most `seconds` are spent on a plan. Any thread.
  PlanRetuner(const backend::Registry& registry, double seconds, std::function<Tactics()> load,
              std::function<void(const Tactics&)> keep);

  runtime::Retuned known(const runtime::Plan& plan, const device::Target& target) const override;
  runtime::Retuned time(const runtime::Plan& plan, const device::Target& target,
                        const std::atomic<bool>& stop) const override;

 private:
  runtime::Retuned choose(const runtime::Plan& plan, const device::Target& target, Tactics& tactics,
                          double seconds, const std::atomic<bool>* stop) const;
  Tactics loaded() const;

  const backend::Registry& registry_;
  double seconds_;
  std::function<Tactics()> load_;
  std::function<void(const Tactics&)> keep_;
};

}  // namespace pelton::compiler
