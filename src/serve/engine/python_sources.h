// SPDX-License-Identifier: Apache-2.0
// The programs of python/, carried in the binary.
#pragma once

#include <string_view>

namespace pelton::serve {

std::string_view python_worker_source();
std::string_view python_utils_source();

}  // namespace pelton::serve
