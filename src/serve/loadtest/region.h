// SPDX-License-Identifier: Apache-2.0
// A segment of POSIX shared memory that a connection of the load generator uses for its tensors.
#pragma once

#include <string>

#include "serve/core/model_dir.h"

namespace pelton::serve {

class LoadRegion {
 public:
  explicit LoadRegion(size_t size);  // io error if there is no room
  ~LoadRegion();                     // removes the segment
  const std::string& name() const { return name_; }
  std::string key() const { return "/" + name_; }
  size_t size() const { return size_; }
  char* data() const { return data_; }

 private:
  std::string name_;
  size_t size_;
  Fd fd_;
  char* data_ = nullptr;
};

// Where one tensor lies in the region; offsets are multiples of 64.
inline size_t region_step(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace pelton::serve
