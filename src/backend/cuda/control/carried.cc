// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/control/carried.h"

#include "backend/cuda/aligned.h"
#include "backend/cuda/control/conditional.h"

namespace pelton::backend::cuda {

Carried::Carried(const Body& body, size_t first, size_t count) : first_(first) {
  for (size_t i = 0; i < count; ++i) {
    bytes_.push_back(body.output_bytes(first + i));
    aside_.push_back(body.passed_on(first + i) < 0 ? -1 : scratch_bytes_);
    if (aside_.back() >= 0) scratch_bytes_ += aligned(bytes_.back());
  }
}

void Carried::begin(std::span<void* const> to, const void* const* from, cudaStream_t stream) const {
  for (size_t i = 0; i < count(); ++i) copy(to[i], from[i], bytes_[i], stream);
}

void Carried::set_aside(std::vector<const void*>& results, std::byte* scratch, cudaStream_t stream) const {
  for (size_t i = 0; i < count(); ++i) {
    if (aside_[i] < 0) continue;
    copy(scratch + aside_[i], results[first_ + i], bytes_[i], stream);
    results[first_ + i] = scratch + aside_[i];
  }
}

void Carried::hand_over(std::span<void* const> to, const std::vector<const void*>& results,
                        cudaStream_t stream) const {
  for (size_t i = 0; i < count(); ++i) copy(to[i], results[first_ + i], bytes_[i], stream);
}

}  // namespace pelton::backend::cuda
