// SPDX-License-Identifier: Apache-2.0
// Leveled logging to standard error, or to one callback that the host program sets. Standard output is never
// touched: it belongs to results. Any thread may log.
#pragma once

#include <string_view>

#include "base/cat.h"

namespace pelton {

enum class LogLevel { trace, debug, info, warn, error, off };

std::string_view to_string(LogLevel level);
LogLevel parse_log_level(std::string_view name);  // a name that is none of them is a usage error

// Messages below the level are dropped. The level at start is warn.
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);

// A sink gets every enabled message instead of standard error; `message` is valid during the call only.
// nullptr goes back to standard error. The sink may be called from any thread, one call at a time, and must
// not log.
using LogSink = void (*)(void* user, LogLevel level, const char* message);
void set_log_sink(LogSink sink, void* user);

void log(LogLevel level, std::string_view message);
// Whatever the level is that was set: what a program of the user's prints, which nobody asked us to judge.
void log_always(LogLevel level, std::string_view message);

template <class... Args>
void log_debug(const Args&... args) {
  if (log_enabled(LogLevel::debug)) log(LogLevel::debug, cat(args...));
}
template <class... Args>
void log_info(const Args&... args) {
  if (log_enabled(LogLevel::info)) log(LogLevel::info, cat(args...));
}
template <class... Args>
void log_warn(const Args&... args) {
  if (log_enabled(LogLevel::warn)) log(LogLevel::warn, cat(args...));
}
template <class... Args>
void log_error(const Args&... args) {
  if (log_enabled(LogLevel::error)) log(LogLevel::error, cat(args...));
}

}  // namespace pelton
