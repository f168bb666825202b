// SPDX-License-Identifier: Apache-2.0
// Weights whose plain bytes are made when somebody needs them: a plan that holds them in the order of a
// kernel only. They have an address from the start, by which PackedWeights knows them; whoever reads the
// bytes behind it calls ready() before.
#pragma once

#include <functional>
#include <map>
#include <mutex>

#include "runtime/weight_store.h"

namespace pelton::runtime {

// One a process; any thread.
class LateWeights {
 public:
  static LateWeights& instance();

  // Takes address space, no memory. `fill` writes all bytes; it runs once, unless it throws.
  Blob reserve(size_t bytes, std::function<void(void*)> fill);
  // Fills what was reserved around this address; nothing for other addresses.
  void ready(const void* at);
  // Bytes that were reserved and not filled.
  size_t open_bytes();

 private:
  struct Late;
  std::shared_ptr<Late> find(const void* at);

  std::mutex mutex_;
  std::map<const std::byte*, std::weak_ptr<Late>> all_;  // by address; guarded by mutex_
};

}  // namespace pelton::runtime
