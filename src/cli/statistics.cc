// SPDX-License-Identifier: Apache-2.0
#include "cli/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "cli/command.h"

namespace pelton::cli {
namespace {

double percentile(const std::vector<double>& sorted, double p) {
  auto rank = static_cast<size_t>(std::ceil(p / 100 * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return percentile(values, 50);
}

}  // namespace

Latency summarise(std::vector<double> ms) {
  PELTON_CHECK(!ms.empty());
  Latency l;
  auto half = ms.begin() + static_cast<std::ptrdiff_t>(ms.size() / 2);
  double first = median_of({ms.begin(), half == ms.begin() ? ms.end() : half}),
         second = median_of({half, ms.end()});
  l.mean = std::accumulate(ms.begin(), ms.end(), 0.0) / static_cast<double>(ms.size());
  std::sort(ms.begin(), ms.end());
  l.min = ms.front();
  l.median = percentile(ms, 50);
  l.p90 = percentile(ms, 90);
  l.p95 = percentile(ms, 95);
  l.p99 = percentile(ms, 99);
  auto percent = [](double a, double b) { return fixed((a / b - 1) * 100, 0); };
  if (ms.size() < 10) l.warnings.push_back(cat("only ", ms.size(), " runs were measured: raise --seconds"));
  if (second > first * 1.1 || first > second * 1.1)
    l.warnings.push_back(cat("the second half of the runs was ",
                             percent(std::max(first, second), std::min(first, second)), "% ",
                             second > first ? "slower" : "faster",
                             " than the first: the machine is warming up, throttled or shared"));
  if (l.p90 > l.median * 1.25)
    l.warnings.push_back(cat("one run in ten is at least ", percent(l.p90, l.median),
                             "% above the median: something else uses this machine"));
  return l;
}

}  // namespace pelton::cli
