// SPDX-License-Identifier: Apache-2.0
// Log messages to a file instead of standard error, each behind its time (ISO 8601, UTC).
#pragma once

#include <string>

namespace pelton::serve {

// Appends from now on. io error if the file cannot be opened.
void log_to_file(const std::string& path);

}  // namespace pelton::serve
