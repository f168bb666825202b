// SPDX-License-Identifier: Apache-2.0
// How kernels of a device report what only the values of their operands show: an index or a length outside
// of its axis. The runtime gives each step a word in host memory that the device can write; it looks at the
// words when it has waited for the run, and fails it naming the step. A kernel takes the address while it is
// enqueued and writes 1 when it finds a fault; it must go on without reading or writing outside of its
// operands.
#pragma once

#include <cstdint>

namespace pelton::device {

// Of the step that this thread enqueues now; null: nobody looks.
uint32_t* fault_word();

class FaultScope {
 public:
  explicit FaultScope(uint32_t* word);
  ~FaultScope();
  FaultScope(const FaultScope&) = delete;
  FaultScope& operator=(const FaultScope&) = delete;

 private:
  uint32_t* before_;
};

}  // namespace pelton::device
