// SPDX-License-Identifier: Apache-2.0
// The contexts of an executable that nobody uses at present.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/executable.h"
#include "runtime/frame.h"

namespace pelton::runtime {

struct Executable::Pool {
  explicit Pool(int64_t budget_bytes) : budget(budget_bytes) {}
  Budget budget;
  std::mutex mutex;
  std::condition_variable returned;
  std::vector<std::unique_ptr<Frame>> free;
  int64_t made = 0;
  std::once_flag unguarded_once;
  std::shared_ptr<const Executable> unguarded;
};

}  // namespace pelton::runtime
