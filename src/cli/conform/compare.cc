// SPDX-License-Identifier: Apache-2.0
#include "cli/conform/compare.h"

#include <algorithm>
#include <cmath>

namespace pelton::cli {

std::string difference(const Tensor& got, const Tensor& want, Tolerance tolerance) {
  if (!got.defined()) return "no value";
  if (got.dtype() != want.dtype() || got.dims() != want.dims())
    return cat(got.str(), " where ", want.str(), " is expected");
  if (want.dtype() == DType::string) {
    for (size_t i = 0; i < want.strings().size(); ++i)
      if (got.strings()[i] != want.strings()[i])
        return cat("element ", i, " is \"", got.strings()[i], "\", not \"", want.strings()[i], "\"");
    return {};
  }
  double rtol = want.dtype() == DType::bf16 ? std::max(tolerance.rtol, 0x1p-6) : tolerance.rtol;
  int64_t wrong = 0, first = -1;
  double worst = 0;
  bool exact = is_int(want.dtype()) && bits(want.dtype()) == 64;
  for (int64_t i = 0; i < want.count(); ++i) {
    double a = got.get_double(i), b = want.get_double(i);
    if (std::isnan(a) && std::isnan(b)) continue;
    bool same = exact ? got.get_int(i) == want.get_int(i) : a == b;
    if (same || std::fabs(a - b) <= tolerance.atol + rtol * std::fabs(b)) continue;
    if (first < 0) first = i;
    ++wrong;
    if (double d = std::fabs(a - b); !(d <= worst)) worst = d;
  }
  if (!wrong) return {};
  return cat(wrong, " of ", want.count(), " elements differ, by up to ", worst, "; element ", first, " is ",
             got.get_double(first), ", not ", want.get_double(first));
}

std::string difference(const ir::HostValue& got, const PbValue& want, Tolerance tolerance) {
  if (want.kind == PbValue::Kind::tensor) {
    if (got.kind != ir::TypeKind::tensor) return "a tensor is expected";
    return difference(got.tensor, want.tensor, tolerance);
  }
  bool optional = want.kind == PbValue::Kind::optional;
  if (optional && got.kind != ir::TypeKind::optional && want.items.size() == 1)
    return difference(got, want.items[0], tolerance);  // a value where an optional one is allowed
  if (got.kind != (optional ? ir::TypeKind::optional : ir::TypeKind::sequence))
    return optional ? "an optional is expected" : "a sequence is expected";
  if (got.items.size() != want.items.size())
    return cat(got.items.size(), " elements where ", want.items.size(), " are expected");
  for (size_t i = 0; i < want.items.size(); ++i)
    if (std::string d = difference(got.items[i], want.items[i], tolerance); !d.empty())
      return cat("element ", i, ": ", d);
  return {};
}

ir::HostValue to_host(const PbValue& value) {
  if (value.kind == PbValue::Kind::tensor) return value.tensor;
  if (value.kind == PbValue::Kind::map) fail(ErrorCode::bad_type, "maps are not supported as values");
  std::vector<ir::HostValue> items;
  for (const PbValue& v : value.items) items.push_back(to_host(v));
  return value.kind == PbValue::Kind::sequence ? ir::HostValue::sequence(std::move(items))
                                               : ir::HostValue::optional(std::move(items));
}

}  // namespace pelton::cli
