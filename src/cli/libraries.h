// SPDX-License-Identifier: Apache-2.0
// Third-party libraries of this build, as they are loaded now.
#pragma once

#include <string>
#include <vector>

namespace pelton::cli {

struct Library {
  std::string name, version;  // version empty: not in this build
  std::string note;           // why not, or what to know
};
std::vector<Library> used_libraries();

}  // namespace pelton::cli
