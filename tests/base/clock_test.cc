// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <doctest/doctest.h>

#include "base/progress.h"

using namespace pelton;

TEST_CASE("times and durations read well") {
  CHECK(utc_time(0) == "1970-01-01T00:00:00.000Z");
  CHECK(utc_time(1'709'210'096'789'000'000) == "2024-02-29T12:34:56.789Z");
  CHECK(duration_text(0.84) == "0.8 s");
  CHECK(duration_text(9.96) == "10 s");
  CHECK(duration_text(59.4) == "59 s");
  CHECK(duration_text(185) == "3 min 05 s");
  CHECK(duration_text(7800) == "2 h 10 min");
}

TEST_CASE("the monotonic clock never goes back") {
  int64_t last = now_ns();
  for (int i = 0; i < 1000; ++i) {
    int64_t now = now_ns();
    CHECK(now >= last);
    last = now;
  }
}

TEST_CASE("a progress line has count, share, time and an estimate") {
  CHECK(progress_text("tuning", 12, 80, 3) == "tuning 12/80 (15%), 3.0 s, about 17 s left");
  CHECK(progress_text("tuning", 0, 80, 3) == "tuning 0/80 (0%), 3.0 s");
  CHECK(progress_text("tuning", 80, 80, 30) == "tuning 80/80 (100%), 30 s");
  CHECK(progress_text("reading", 5, 0, 12) == "reading 5, 12 s");
}
