// SPDX-License-Identifier: Apache-2.0
// Where the parts of one block of device memory begin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace pelton::backend::cuda {

// The next multiple of 256, as allocations are aligned.
template <class Bytes>
constexpr Bytes aligned(Bytes bytes) {
  static_assert(std::is_same_v<Bytes, int64_t> || std::is_same_v<Bytes, size_t>);
  return (bytes + 255) / 256 * 256;
}

}  // namespace pelton::backend::cuda
