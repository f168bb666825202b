// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.h"

namespace pelton {
namespace {

constexpr std::array<std::string_view, 6> level_names = {"trace", "debug", "info", "warn", "error", "off"};
constexpr std::array<spdlog::level::level_enum, 6> spdlog_levels = {
    spdlog::level::trace, spdlog::level::debug, spdlog::level::info,
    spdlog::level::warn,  spdlog::level::err,   spdlog::level::off};

std::atomic<LogLevel> current_level{LogLevel::warn};

// Hands messages to the host's callback. base_sink holds its lock around sink_it_.
class CallbackSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  CallbackSink(LogSink sink, void* user) : sink_(sink), user_(user) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& msg) override {
    std::string text(msg.payload.data(), msg.payload.size());
    auto level = LogLevel::trace;
    for (size_t i = 0; i < spdlog_levels.size(); ++i)
      if (spdlog_levels[i] == msg.level) level = static_cast<LogLevel>(i);
    sink_(user_, level, text.c_str());
  }
  void flush_() override {}

 private:
  LogSink sink_;
  void* user_;
};

std::shared_ptr<spdlog::logger> make_logger(spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("pelton", std::move(sink));
  logger->set_level(spdlog::level::trace);  // filtered by current_level before it gets here
  return logger;
}

std::shared_ptr<spdlog::logger> stderr_logger() {
  auto logger = make_logger(std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("pelton: %^%l%$: %v");
  return logger;
}

// Replaced as a whole: a thread that is logging keeps the logger it started with.
struct LoggerSlot {
  std::mutex mutex;
  std::shared_ptr<spdlog::logger> logger = stderr_logger();
};
LoggerSlot& slot() {
  static auto* s = new LoggerSlot;  // never destroyed: other threads may log while the process exits
  return *s;
}

}  // namespace

std::string_view to_string(LogLevel level) {
  return level_names[static_cast<size_t>(level)];
}

LogLevel parse_log_level(std::string_view name) {
  for (size_t i = 0; i < level_names.size(); ++i)
    if (level_names[i] == name) return static_cast<LogLevel>(i);
  fail(ErrorCode::usage, cat("unknown log level \"", name, "\""), "",
       "use trace, debug, info, warn, error or off");
}

void set_log_level(LogLevel level) {
  current_level.store(level, std::memory_order_relaxed);
}

bool log_enabled(LogLevel level) {
  return level != LogLevel::off && level >= current_level.load(std::memory_order_relaxed);
}

void set_log_sink(LogSink sink, void* user) {
  auto logger = sink ? make_logger(std::make_shared<CallbackSink>(sink, user)) : stderr_logger();
  std::lock_guard lock(slot().mutex);
  slot().logger = std::move(logger);
}

void log(LogLevel level, std::string_view message) {
  if (log_enabled(level)) log_always(level, message);
}

void log_always(LogLevel level, std::string_view message) {
  std::shared_ptr<spdlog::logger> logger;
  {
    std::lock_guard lock(slot().mutex);
    logger = slot().logger;
  }
  logger->log(spdlog_levels[static_cast<size_t>(level)],
              spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace pelton
