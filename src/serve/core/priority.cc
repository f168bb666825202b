// SPDX-License-Identifier: Apache-2.0
#include "serve/core/priority.h"

#include <sys/resource.h>

#include <thread>

namespace pelton::serve {
namespace {

// By the scale of nice; a normal thread is at that of the process.
constexpr int kHigh = -5, kLow = 10;

bool set(Priority priority, pid_t id) {
  return ::setpriority(PRIO_PROCESS, static_cast<id_t>(id), priority == Priority::high ? kHigh : kLow) == 0;
}

}  // namespace

void set_priority(Priority priority, pid_t id) {
  if (priority != Priority::normal) (void)set(priority, id);
}

bool may_have(Priority priority) {
  if (priority != Priority::high) return true;
  bool allowed = false;
  std::thread([&] {
    allowed = set(priority, 0);
  }).join();  // a thread of its own, since going back may be refused
  return allowed;
}

}  // namespace pelton::serve
