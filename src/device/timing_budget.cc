// SPDX-License-Identifier: Apache-2.0
#include "device/timing_budget.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/interrupt.h"

namespace pelton::device {
namespace {

std::atomic<TimingBudget*> present{nullptr};

}  // namespace

TimingBudget::TimingBudget(double seconds) : end_ns_(now_ns() + static_cast<int64_t>(seconds * 1e9)) {
  TimingBudget* none = nullptr;
  PELTON_CHECK(present.compare_exchange_strong(none, this), "two compilations with a time budget");
}

TimingBudget::~TimingBudget() {
  present = nullptr;
}

bool TimingBudget::spent() const {
  return now_ns() >= end_ns_ || interrupted();
}

TimingBudget* TimingBudget::current() {
  return present;
}

}  // namespace pelton::device
