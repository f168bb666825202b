// SPDX-License-Identifier: Apache-2.0
// How busy each model has been lately, from its counters at the times when somebody looked.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "serve/core/request.h"

namespace pelton::serve {

class LoadMeter {
 public:
  struct Load {
    double per_second = 0;  // answers
    double busy = 0;        // executions under way at a time, on average
  };
  // Since the last look that is two seconds old or older, or since the server started.
  Load look(const std::string& key, uint64_t answers, uint64_t infer_ns, Clock::time_point now);

 private:
  struct Sample {
    Clock::time_point when;
    uint64_t answers = 0, infer_ns = 0;
  };
  struct Pair {
    Sample older, newer;
  };
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  std::map<std::string, Pair> seen_;
};

}  // namespace pelton::serve
