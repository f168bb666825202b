// SPDX-License-Identifier: Apache-2.0
#include "serve/core/load_meter.h"

#include <algorithm>

namespace pelton::serve {

LoadMeter::Load LoadMeter::look(const std::string& key, uint64_t answers, uint64_t infer_ns,
                                Clock::time_point now) {
  std::lock_guard lock(mutex_);
  Pair& p = seen_.try_emplace(key, Pair{{start_}, {start_}}).first->second;
  if (now - p.newer.when >= std::chrono::seconds(2)) {
    p.older = p.newer;
    p.newer = {now, answers, infer_ns};
  }
  const double seconds = std::max(1e-3, std::chrono::duration<double>(now - p.older.when).count());
  return {static_cast<double>(answers - p.older.answers) / seconds,
          static_cast<double>(infer_ns - p.older.infer_ns) * 1e-9 / seconds};
}

}  // namespace pelton::serve
