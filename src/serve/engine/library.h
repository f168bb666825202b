// SPDX-License-Identifier: Apache-2.0
// Engines that users bring as shared libraries (include/pelton/c/engine.h). Named on the command line only.
#pragma once

#include <memory>
#include <string>

#include "serve/core/engine.h"

namespace pelton::serve {

// plugin error if the file is no such library.
std::shared_ptr<const Backend> open_library_backend(const std::string& file);

}  // namespace pelton::serve
