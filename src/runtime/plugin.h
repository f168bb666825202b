// SPDX-License-Identifier: Apache-2.0
// Shared libraries with ops of users (include/pelton/c/plugin.h). Loaded only on a user's word.
#pragma once

#include <string>

#include "backend/kernel.h"

namespace pelton::runtime {

// Adds the ops of the library to the op table. `plugin` errors name the library and what is wrong with it: no
// table, a newer ABI, an op that exists already. Loading the same file twice does nothing.
void load_plugin(const std::string& path);

// Runs `custom` nodes on the kernels of plug-ins.
backend::Implementation plugin_implementation();

}  // namespace pelton::runtime
