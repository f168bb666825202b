// SPDX-License-Identifier: Apache-2.0
#include "base/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

namespace pelton {

void prefer_huge_pages(void* data, size_t bytes) {
#ifdef MADV_HUGEPAGE
  const auto first = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (first + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const uintptr_t end = (first + bytes) / kHugePageBytes * kHugePageBytes;
  if (data && begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

}  // namespace pelton
