// SPDX-License-Identifier: Apache-2.0
// Progress of work that may take long: one line on standard error with what is done and how long the rest
// takes. Nothing is printed in the first two seconds.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace pelton {

// automatic: only where standard error is a terminal. always: also into files and pipes, a line each time.
enum class ProgressMode { off, automatic, always };
void set_progress_mode(ProgressMode mode);  // automatic at start

// Lives as long as the work. add() may be called from any thread.
class Progress {
 public:
  // `total` in units of the work (nodes, bytes, cases); 0 when it is not known.
  Progress(std::string what, int64_t total);
  ~Progress();  // removes the line, or ends it
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(int64_t units = 1);

 private:
  void show(int64_t now);

  std::string what_;
  int64_t total_, start_ns_;
  std::atomic<int64_t> done_{0}, next_show_ns_;
  std::mutex mutex_;
  bool on_, terminal_, shown_ = false;
};

// The line without its control characters: "tuning 12/80 (15%), 3.0 s, about 17 s left".
std::string progress_text(const std::string& what, int64_t done, int64_t total, double seconds);

}  // namespace pelton
