// SPDX-License-Identifier: Apache-2.0
#include "ir/attr.h"

#include "ir/text.h"

namespace pelton::ir {

std::string_view name(AttrKind kind) {
  static constexpr std::string_view names[] = {"integer", "real",    "boolean", "text",   "dtype", "ints",
                                               "floats",  "strings", "dims",    "tensor", "graph"};
  return names[static_cast<size_t>(kind)];
}

bool equal(const Attr& a, const Attr& b) {
  if (a.index() != b.index()) return false;
  if (auto t = std::get_if<Tensor>(&a)) return t->same_bytes(std::get<Tensor>(b));
  if (auto g = std::get_if<GraphPtr>(&a)) {
    const GraphPtr& h = std::get<GraphPtr>(b);
    return *g == h || print(**g) == print(*h);
  }
  if (auto d = std::get_if<double>(&a))
    return cat(*d) == cat(std::get<double>(b));  // NaN equals NaN, -0 is not 0
  return std::visit(
      [&](const auto& x) -> bool {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, Tensor>)
          return false;
        else
          return x == std::get<T>(b);
      },
      a);
}

}  // namespace pelton::ir
