// SPDX-License-Identifier: Apache-2.0
// Regular expressions from text to a program of states.
#pragma once

#include <string_view>
#include <vector>

#include "ir/ops/regex.h"

namespace pelton::ir {

std::vector<RegexState> parse_regex(std::string_view pattern);

}  // namespace pelton::ir
