// SPDX-License-Identifier: Apache-2.0
// Shared libraries with ops and kernels of users (include/pelton/c/plugin.h). Loaded only on a user's word.
#pragma once

#include <string>
#include <vector>

#include "backend/kernel.h"

namespace pelton::runtime {

// Adds the ops of the library to the op table. `plugin` errors name the library and what is wrong with it: no
// table, another ABI, an op that exists already. Loading the same file twice does nothing.
void load_plugin(const std::string& path);

// Those that the loaded plug-ins add, in the order of loading. From the first call on a plug-in that brings
// more is refused, since plans may have been made without them.
std::vector<backend::Implementation> plugin_implementations();
// Runs `custom` nodes on the kernels of their ops.
backend::Implementation plugin_implementation();

}  // namespace pelton::runtime
