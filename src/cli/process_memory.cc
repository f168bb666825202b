// SPDX-License-Identifier: Apache-2.0
#include "cli/process_memory.h"

#include <cstdlib>
#include <fstream>
#include <string>

namespace pelton::cli {

// Not getrusage: its figure survives exec, so a large parent's memory would be counted as this process's.
int64_t peak_memory_bytes() {
  constexpr std::string_view key = "VmHWM:";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.compare(0, key.size(), key) == 0)
      return std::strtoll(line.c_str() + key.size(), nullptr, 10) * 1024;  // in kB
  return 0;
}

}  // namespace pelton::cli
