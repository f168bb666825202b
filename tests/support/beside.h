// SPDX-License-Identifier: Apache-2.0
// Files that are built with a test: where the build put them, or beside the binary where that was carried
// away.
#pragma once

#include <filesystem>
#include <string>

namespace pelton::test {

inline std::string next_to_binary(const std::string& built) {
  if (std::filesystem::exists(built)) return built;
  const std::filesystem::path binary = std::filesystem::read_symlink("/proc/self/exe");
  return (binary.parent_path() / std::filesystem::path(built).filename()).string();
}

}  // namespace pelton::test
