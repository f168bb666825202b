// SPDX-License-Identifier: Apache-2.0
#include "cli/compare.h"

#include <algorithm>
#include <cmath>

namespace pelton::cli {

Difference compare(const Tensor& got, const Tensor& expected, double rtol, double atol) {
  Difference d;
  if (got.dtype() != expected.dtype() || got.dims() != expected.dims()) {
    d.reason = cat("is ", got.str(), ", expected ", expected.str());
    return d;
  }
  if (got.dtype() == DType::string) {
    if (got.strings() != expected.strings()) d.reason = "the strings differ";
    return d;
  }
  if (got.same_bytes(expected)) return d;
  int64_t worst = -1;
  double worst_excess = 0;
  for (int64_t i = 0; i < got.count(); ++i) {
    double excess = 0, a, b;
    if (is_float(got.dtype())) {
      a = got.get_double(i);
      b = expected.get_double(i);
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      double error = std::abs(a - b), allowed = atol + rtol * std::abs(b);
      if (std::isfinite(error)) {
        d.max_abs = std::max(d.max_abs, error);
        if (b != 0) d.max_rel = std::max(d.max_rel, error / std::abs(b));
        excess = error <= allowed ? 0 : error - allowed;
      } else {
        excess = HUGE_VAL;
        d.max_abs = HUGE_VAL;
      }
    } else {
      int64_t x = got.get_int(i), y = expected.get_int(i);
      if (x == y) continue;
      double error = std::abs(static_cast<double>(x) - static_cast<double>(y));
      d.max_abs = std::max(d.max_abs, error);
      excess = error;
    }
    if (excess > 0) {
      ++d.wrong;
      if (worst < 0 || excess > worst_excess) {
        worst = i;
        worst_excess = excess;
      }
    }
  }
  if (d.wrong > 0)
    d.reason = cat(d.wrong, " of ", got.count(), " elements differ, most at ", worst, ": ",
                   got.get_double(worst), ", expected ", expected.get_double(worst));
  return d;
}

}  // namespace pelton::cli
