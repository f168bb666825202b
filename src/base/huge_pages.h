// SPDX-License-Identifier: Apache-2.0
// Large buffers on large pages: fewer first-touch faults and fewer misses of the address cache.
#pragma once

#include <cstddef>

namespace pelton {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Asks for large pages in the whole ones of [data, data + bytes). To be called before the memory is first
// written; a hint only, so a system without them goes on as before.
void prefer_huge_pages(void* data, size_t bytes);

// Alignment for a buffer of this size: its own if it is small, a large page's where it holds several.
constexpr size_t huge_alignment(size_t bytes, size_t otherwise) {
  return bytes >= 4 * kHugePageBytes ? kHugePageBytes : otherwise;
}

}  // namespace pelton
