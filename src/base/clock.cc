// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <cmath>
#include <cstdio>
#include <ctime>

#include "base/cat.h"

namespace pelton {
namespace {

int64_t read_clock(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

int64_t now_ns() {
  return read_clock(CLOCK_MONOTONIC);
}
int64_t unix_time_ns() {
  return read_clock(CLOCK_REALTIME);
}

std::string utc_time(int64_t unix_ns) {
  time_t seconds = static_cast<time_t>(unix_ns / 1'000'000'000);
  tm parts{};
  gmtime_r(&seconds, &parts);
  char date[40], text[56];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text, sizeof text, "%s.%03dZ", date, static_cast<int>(unix_ns / 1'000'000 % 1000));
  return text;
}

std::string duration_text(double seconds) {
  char text[48];
  auto whole = static_cast<int64_t>(std::llround(seconds));
  if (seconds < 9.95) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
    return text;
  }
  if (whole < 60) return cat(whole, " s");
  int64_t minutes = whole / 60;
  if (minutes < 60)
    std::snprintf(text, sizeof text, "%d min %02d s", static_cast<int>(minutes),
                  static_cast<int>(whole % 60));
  else
    std::snprintf(text, sizeof text, "%lld h %02d min", static_cast<long long>(minutes / 60),
                  static_cast<int>(minutes % 60));
  return text;
}

}  // namespace pelton
