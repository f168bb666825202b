// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace pelton {

std::string_view version();  // "0.1.0"

}  // namespace pelton
