// SPDX-License-Identifier: Apache-2.0
// How long a compilation may time choices on a device while kernels are prepared. Without one, every choice
// is timed. One at a time in a process; any thread asks.
#pragma once

#include <atomic>
#include <cstdint>

namespace pelton::device {

class TimingBudget {
 public:
  explicit TimingBudget(double seconds);  // from now on
  ~TimingBudget();
  TimingBudget(const TimingBudget&) = delete;
  TimingBudget& operator=(const TimingBudget&) = delete;
  // The time is up, or the user has interrupted: what is not timed takes its first way that works.
  bool spent() const;
  void count_left_out() { ++left_out_; }
  int64_t left_out() const { return left_out_; }  // choices that were not timed

  static TimingBudget* current();  // null: no limit

 private:
  int64_t end_ns_;
  std::atomic<int64_t> left_out_{0};
};

}  // namespace pelton::device
