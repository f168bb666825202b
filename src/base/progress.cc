// SPDX-License-Identifier: Apache-2.0
#include "base/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/cat.h"
#include "base/clock.h"

namespace pelton {
namespace {

constexpr int64_t quiet_ns = 2'000'000'000;
constexpr int64_t terminal_interval_ns = 200'000'000, line_interval_ns = 5'000'000'000;

std::atomic<ProgressMode> mode{ProgressMode::automatic};

void print(const std::string& text) {
  // One write a line, so lines of several threads do not mix. Nothing can be done about a closed stderr.
  [[maybe_unused]] ssize_t ignored = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

void set_progress_mode(ProgressMode m) {
  mode.store(m);
}

std::string progress_text(const std::string& what, int64_t done, int64_t total, double seconds) {
  std::string out = cat(what, " ", done);
  if (total > 0) append(out, cat("/", total, " (", std::min<int64_t>(100, done * 100 / total), "%)"));
  append(out, cat(", ", duration_text(seconds)));
  if (total > done && done > 0)
    append(out, cat(", about ",
                    duration_text(seconds * static_cast<double>(total - done) / static_cast<double>(done)),
                    " left"));
  return out;
}

Progress::Progress(std::string what, int64_t total)
    : what_(std::move(what)), total_(total), start_ns_(now_ns()), next_show_ns_(start_ns_ + quiet_ns) {
  terminal_ = ::isatty(STDERR_FILENO) == 1;
  ProgressMode m = mode.load();
  on_ = m == ProgressMode::always || (m == ProgressMode::automatic && terminal_);
}

Progress::~Progress() {
  if (shown_ && terminal_) print("\r\033[K");
}

void Progress::add(int64_t units) {
  done_.fetch_add(units, std::memory_order_relaxed);
  if (!on_) return;
  int64_t now = now_ns();
  if (now >= next_show_ns_.load(std::memory_order_relaxed)) show(now);
}

void Progress::show(int64_t now) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || now < next_show_ns_.load(std::memory_order_relaxed)) return;  // another thread shows it
  next_show_ns_.store(now + (terminal_ ? terminal_interval_ns : line_interval_ns), std::memory_order_relaxed);
  shown_ = true;
  std::string text = progress_text(what_, done_.load(std::memory_order_relaxed), total_,
                                   static_cast<double>(now - start_ns_) * 1e-9);
  print(terminal_ ? cat("\r\033[K", text) : cat("pelton: ", text, "\n"));
}

}  // namespace pelton
