// SPDX-License-Identifier: Apache-2.0
// A read-only mapping of memory that others may shorten while we read it. Where it has been cut off, the
// process reads zeros instead of ending with SIGBUS, and the mapping says so afterwards.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

namespace pelton::serve {

class GuardedMap {
 public:
  // Bytes [offset, offset + size) of `fd`. Null if they cannot be mapped or no guard is free: read them
  // instead.
  static std::shared_ptr<const GuardedMap> make(int fd, size_t offset, size_t size);
  ~GuardedMap();
  GuardedMap(const GuardedMap&) = delete;
  GuardedMap& operator=(const GuardedMap&) = delete;

  const char* data() const { return data_; }
  size_t size() const { return size_; }
  // For any address: whether it lies in a mapping, and whether something was missing when that was read.
  static bool covers(const void* p);
  static bool damaged_at(const void* p);

 private:
  GuardedMap() = default;
  char* base_ = nullptr;
  size_t length_ = 0;  // whole pages
  const char* data_ = nullptr;
  size_t size_ = 0;
  int slot_ = -1;
};

}  // namespace pelton::serve
