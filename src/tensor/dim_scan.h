// SPDX-License-Identifier: Apache-2.0
// Expressions of dimensions within a longer text.
#pragma once

#include <string_view>

#include "tensor/dim.h"

namespace pelton {

// The expression at `at`, up to the first of `ends` outside parentheses or to a parenthesis that closes none;
// `at` moves behind it. bad_format as of Dim::parse.
Dim scan_dim(std::string_view text, size_t& at, std::string_view ends);

}  // namespace pelton
