// SPDX-License-Identifier: Apache-2.0
#include "cli/process_memory.h"

#include <sys/resource.h>

namespace pelton::cli {

int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace pelton::cli
