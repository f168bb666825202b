// SPDX-License-Identifier: Apache-2.0
// "Did you mean ...": the candidate that a wrong name most likely stands for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pelton {

// The candidate nearest to `text` in edit distance, or "" when none is near.
std::string nearest(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace pelton
