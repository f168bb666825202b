// SPDX-License-Identifier: Apache-2.0
// Ranges of values seen on samples, for quantisation.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace pelton::compiler {

// minmax: everything seen. percentile: all but one value in ten thousand, half of them at each end. entropy:
// the range whose quantised distribution is nearest to the one seen (Kullback-Leibler).
enum class Calibration : uint8_t { minmax, percentile, entropy };
Calibration calibration_from_name(std::string_view name);  // usage lists them

struct Range {
  double low = 0, high = 0;  // 0 is inside
  double mean_square = 0;    // of the values, to weigh an error against
};

// One tensor's values, seen in two passes: the bounds first, then how they lie between them. f32 only; NaN is
// numeric.
class RangeFinder {
 public:
  void see_bounds(const Tensor& values, std::string_view what);
  void see_distribution(const Tensor& values);
  Range range(Calibration method) const;

 private:
  static constexpr int kBins = 2048;
  double low_ = 0, high_ = 0, square_sum_ = 0;
  int64_t count_ = 0;
  std::vector<int64_t> bins_;  // equal parts of [low_, high_]
  Range by_percentile() const;
  Range by_entropy() const;
};

}  // namespace pelton::compiler
