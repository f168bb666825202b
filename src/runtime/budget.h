// SPDX-License-Identifier: Apache-2.0
// The limit of the memory that the contexts of an executable share.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace pelton::runtime {

// Bytes taken by weights and arenas, against a limit. Any thread.
class Budget {
 public:
  explicit Budget(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  // A limit error if `bytes` more, and `also` that are not counted here, would exceed the limit.
  void take(int64_t bytes, int64_t also, std::string_view what);
  void give(int64_t bytes) { used_bytes_ -= bytes; }

 private:
  const int64_t limit_bytes_;  // 0: none
  std::atomic<int64_t> used_bytes_{0};
};

}  // namespace pelton::runtime
