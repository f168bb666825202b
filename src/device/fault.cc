// SPDX-License-Identifier: Apache-2.0
#include "device/fault.h"

#include <utility>

namespace pelton::device {
namespace {

thread_local uint32_t* current = nullptr;

}  // namespace

uint32_t* fault_word() {
  return current;
}

FaultScope::FaultScope(uint32_t* word) : before_(std::exchange(current, word)) {}
FaultScope::~FaultScope() {
  current = before_;
}

}  // namespace pelton::device
