// SPDX-License-Identifier: Apache-2.0
// What an iteration hands to the next one: results of a body into the memory that its inputs lie in.
#pragma once

#include "backend/cuda/control/body.h"

namespace pelton::backend::cuda {

class Carried {
 public:
  // The outputs first, first + 1, ... of the body.
  Carried(const Body& body, size_t first, size_t count);
  int64_t scratch_bytes() const { return scratch_bytes_; }
  size_t count() const { return bytes_.size(); }

  // By carried value, what lies in `from`, as the loop begins.
  void begin(std::span<void* const> to, const void* const* from, cudaStream_t stream) const;
  // Copies those results that are inputs of the body, which may be written over before they are read.
  // `results`: by output of the body.
  void set_aside(std::vector<const void*>& results, std::byte* scratch, cudaStream_t stream) const;
  // Writes over the carried inputs, after set_aside().
  void hand_over(std::span<void* const> to, const std::vector<const void*>& results,
                 cudaStream_t stream) const;

 private:
  size_t first_;
  std::vector<int64_t> bytes_, aside_;  // by carried value: its size; where it waits in the scratch, or -1
  int64_t scratch_bytes_ = 0;
};

}  // namespace pelton::backend::cuda
