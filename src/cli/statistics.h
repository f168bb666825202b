// SPDX-License-Identifier: Apache-2.0
// What a list of latencies says, and whether it can be trusted.
#pragma once

#include <string>
#include <vector>

namespace pelton::cli {

struct Latency {
  double min = 0, mean = 0, median = 0, p90 = 0, p95 = 0, p99 = 0;
  std::vector<std::string> warnings;  // empty: stable
};

// `ms` in the order measured, not empty. Percentiles are of the nearest rank.
Latency summarise(std::vector<double> ms);

}  // namespace pelton::cli
