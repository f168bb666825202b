// SPDX-License-Identifier: Apache-2.0
#include "base/nearest.h"

#include <algorithm>

namespace pelton {

std::string nearest(std::string_view text, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, text.size() / 3) + 1;
  for (const auto& c : candidates) {
    std::vector<size_t> row(c.size() + 1);
    for (size_t j = 0; j <= c.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= text.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= c.size(); ++j) {
        size_t next = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (text[i - 1] != c[j - 1])});
        diagonal = row[j];
        row[j] = next;
      }
    }
    if (row.back() < best_distance) best_distance = row.back(), best = c;
  }
  return best;
}

}  // namespace pelton
