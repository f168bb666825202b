// SPDX-License-Identifier: Apache-2.0
#include "compiler/calibrate.h"

#include <algorithm>
#include <cmath>

#include "base/cat.h"
#include "base/error.h"

namespace pelton::compiler {

Calibration calibration_from_name(std::string_view name) {
  if (name == "minmax") return Calibration::minmax;
  if (name == "percentile") return Calibration::percentile;
  if (name == "entropy") return Calibration::entropy;
  fail(ErrorCode::usage, cat("there is no calibration '", name, "'"), "--calibration",
       "use minmax, percentile or entropy");
}

void RangeFinder::see_bounds(const Tensor& values, std::string_view what) {
  PELTON_CHECK(values.dtype() == DType::f32, values.str());
  const auto* p = static_cast<const float*>(values.data());
  for (int64_t i = 0; i < values.count(); ++i) {
    if (!std::isfinite(p[i]))
      fail(ErrorCode::numeric, cat("a sample makes ", p[i]), std::string(what),
           "calibrate on samples with finite values");
    low_ = std::min<double>(low_, p[i]);
    high_ = std::max<double>(high_, p[i]);
    square_sum_ += static_cast<double>(p[i]) * p[i];
  }
  count_ += values.count();
}

void RangeFinder::see_distribution(const Tensor& values) {
  bins_.resize(kBins, 0);
  if (!(high_ > low_)) return;
  const auto* p = static_cast<const float*>(values.data());
  const double scale = kBins / (high_ - low_);
  for (int64_t i = 0; i < values.count(); ++i)
    ++bins_[static_cast<size_t>(std::clamp((p[i] - low_) * scale, 0.0, kBins - 1.0))];
}

Range RangeFinder::range(Calibration method) const {
  Range r{low_, high_, 0};
  if (!bins_.empty() && high_ > low_) {
    if (method == Calibration::percentile) r = by_percentile();
    if (method == Calibration::entropy) r = by_entropy();
  }
  r.low = std::min(r.low, 0.0);
  r.high = std::max(r.high, 0.0);
  r.mean_square = count_ ? square_sum_ / static_cast<double>(count_) : 0;
  return r;
}

Range RangeFinder::by_percentile() const {
  int64_t total = 0;
  for (int64_t b : bins_) total += b;
  const auto out = static_cast<int64_t>(static_cast<double>(total) * 5e-5);
  int first = 0, last = kBins;
  for (int64_t seen = 0; first < kBins && seen + bins_[static_cast<size_t>(first)] <= out; ++first)
    seen += bins_[static_cast<size_t>(first)];
  for (int64_t seen = 0; last > first + 1 && seen + bins_[static_cast<size_t>(last - 1)] <= out; --last)
    seen += bins_[static_cast<size_t>(last - 1)];
  const double width = (high_ - low_) / kBins;
  return {low_ + first * width, low_ + last * width, 0};
}

// Candidates cut the same number of bins at the end that is farther from 0 and scale the other end along,
// down to a sixteenth. The quantised distribution has 256 levels, each spread over those of its bins that
// hold anything; what is cut counts at the border.
Range RangeFinder::by_entropy() const {
  constexpr int kLevels = 256;
  double best = HUGE_VAL;
  Range out{low_, high_, 0};
  const double width = (high_ - low_) / kBins;
  for (double keep = 1.0; keep >= 1.0 / 16; keep -= 1.0 / 64) {
    const double low = low_ * keep, high = high_ * keep;
    const int first = std::clamp(static_cast<int>((low - low_) / width), 0, kBins - 1);
    const int last = std::clamp(static_cast<int>(std::ceil((high - low_) / width)), first + 1, kBins);
    const int count = last - first;
    std::vector<double> p(static_cast<size_t>(count)), q(static_cast<size_t>(count), 0);
    double total = 0;
    for (int i = 0; i < kBins; ++i) {
      p[static_cast<size_t>(std::clamp(i, first, last - 1) - first)] +=
          static_cast<double>(bins_[static_cast<size_t>(i)]);
      total += static_cast<double>(bins_[static_cast<size_t>(i)]);
    }
    for (int level = 0; level < kLevels; ++level) {
      const int from = level * count / kLevels, to = std::max(from + 1, (level + 1) * count / kLevels);
      double sum = 0;
      int filled = 0;
      for (int i = from; i < std::min(to, count); ++i) {
        const auto bin = static_cast<double>(bins_[static_cast<size_t>(first + i)]);
        sum += bin;
        filled += bin > 0;
      }
      for (int i = from; i < std::min(to, count); ++i)
        if (bins_[static_cast<size_t>(first + i)] > 0) q[static_cast<size_t>(i)] = sum / filled;
    }
    double q_total = 0, divergence = 0;
    for (double v : q) q_total += v;
    if (!(q_total > 0) || !(total > 0)) continue;
    constexpr double kTiny = 1e-9;
    for (size_t i = 0; i < p.size(); ++i)
      if (p[i] > 0) divergence += p[i] / total * std::log(p[i] / total / std::max(kTiny, q[i] / q_total));
    if (divergence < best - 1e-12) {
      best = divergence;
      out = {low, high, 0};
    }
  }
  return out;
}

}  // namespace pelton::compiler
