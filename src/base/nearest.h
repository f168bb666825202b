// SPDX-License-Identifier: Apache-2.0
// "Did you mean ...": the candidate that a wrong name most likely stands for.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pelton {

// Insertions, removals and exchanges of a byte that turn `a` into `b`; time is the product of their sizes.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `text` in edit distance, or "" when none is near.
std::string nearest(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace pelton
