// SPDX-License-Identifier: Apache-2.0
// Time: a monotonic clock for durations, UTC text for people.
#pragma once

#include <cstdint>
#include <string>

namespace pelton {

int64_t now_ns();                           // monotonic; comparable within one process only
int64_t unix_time_ns();                     // since 1970, follows clock changes
std::string utc_time(int64_t unix_ns);      // 2026-01-31T23:59:59.123Z
std::string duration_text(double seconds);  // "0.8 s", "12 s", "3 min 05 s", "2 h 10 min"

class Stopwatch {
 public:
  int64_t elapsed_ns() const { return now_ns() - start_ns_; }
  double seconds() const { return static_cast<double>(elapsed_ns()) * 1e-9; }

 private:
  int64_t start_ns_ = now_ns();
};

}  // namespace pelton
