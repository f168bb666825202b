// SPDX-License-Identifier: Apache-2.0
// What a GPU draws while something is measured, by its own counter.
#pragma once

#include <string>

#include "base/clock.h"
#include "device/target.h"

namespace pelton::cli {

struct Energy {
  std::string off;    // why nothing is known; empty: the rest is
  double joules = 0;  // of all that the GPU did in the time
  double seconds = 0;
  double watts() const { return seconds > 0 ? joules / seconds : 0; }
};

class EnergyMeter {
 public:
  explicit EnergyMeter(const device::Target& target);  // starts
  Energy stop() const;

 private:
  const void* gpu_ = nullptr;
  std::string off_;
  double begin_ = 0;
  Stopwatch watch_;
};

}  // namespace pelton::cli
