// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/expect_error.h"

using namespace pelton;

namespace {
using Seen = std::vector<std::pair<LogLevel, std::string>>;

struct SinkGuard {
  Seen seen;
  SinkGuard() {
    set_log_sink([](void* user, LogLevel level,
                    const char* text) { static_cast<Seen*>(user)->emplace_back(level, text); },
                 &seen);
  }
  ~SinkGuard() {
    set_log_sink(nullptr, nullptr);
    set_log_level(LogLevel::warn);
  }
};
}  // namespace

TEST_CASE("the sink gets messages at or above the level, braces untouched") {
  SinkGuard guard;
  set_log_level(LogLevel::info);
  log_debug("hidden");
  log_info("x is ", 3, " of {}");
  log_error("bad");
  REQUIRE(guard.seen.size() == 2);
  CHECK(guard.seen[0] == std::pair{LogLevel::info, std::string("x is 3 of {}")});
  CHECK(guard.seen[1].first == LogLevel::error);
}

TEST_CASE("level off silences everything") {
  SinkGuard guard;
  set_log_level(LogLevel::off);
  log_error("bad");
  CHECK(guard.seen.empty());
  CHECK_FALSE(log_enabled(LogLevel::off));
}

TEST_CASE("what is always logged passes any level and keeps its own") {
  SinkGuard guard;
  set_log_level(LogLevel::off);
  log_always(LogLevel::info, "printed {}");
  REQUIRE(guard.seen.size() == 1);
  CHECK(guard.seen[0] == std::pair{LogLevel::info, std::string("printed {}")});
}

TEST_CASE("level names parse and an unknown one is refused with the list") {
  for (auto level :
       {LogLevel::trace, LogLevel::debug, LogLevel::info, LogLevel::warn, LogLevel::error, LogLevel::off})
    CHECK(parse_log_level(to_string(level)) == level);
  test::expect_error(ErrorCode::usage, {"unknown log level \"loud\"", "trace, debug, info"},
                     [] { parse_log_level("loud"); });
}
