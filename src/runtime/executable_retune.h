// SPDX-License-Identifier: Apache-2.0
// The thread on which an executable of a foreign plan times its nodes, and the executable that follows it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/executable.h"

namespace pelton::runtime {

struct Executable::Retuning {
  ~Retuning() {
    stop = true;
    if (thread.joinable()) thread.join();
  }
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable ended;
  bool done = false;                       // guarded by mutex
  std::shared_ptr<const Executable> next;  // likewise; set once at most
  std::thread thread;
};

}  // namespace pelton::runtime
