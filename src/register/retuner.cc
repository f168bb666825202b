// SPDX-License-Identifier: Apache-2.0
#include "register/retuner.h"

#include "base/cache_folder.h"
#include "compiler/retune.h"
#include "register/registry.h"
#include "register/tuning.h"

namespace pelton {

const runtime::Retuner& retuner() {
  constexpr double kSeconds = 20;  // beside the runs of the plan
  static const auto* const all = new compiler::PlanRetuner(
      registry(), kSeconds,
      [] {
        const std::string file = timings_file();
        return file.empty() ? compiler::Tactics() : compiler::Tactics::load(file);
      },
      [](const compiler::Tactics& fresh) {
        const std::string file = timings_file();
        if (file.empty()) return;
        compiler::Tactics all = compiler::Tactics::load(file);  // others may have added theirs meanwhile
        all.merge(fresh);
        all.save(file);
      });
  return *all;
}

}  // namespace pelton
