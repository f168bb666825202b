// SPDX-License-Identifier: Apache-2.0
// Metrics that models declare and change: counters, gauges and histograms, by family and labels.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace pelton::serve {

struct MetricChange {
  std::string family, help, kind;  // kind: counter, gauge or histogram
  std::map<std::string, std::string> labels;
  std::vector<double> buckets;  // histograms: upper bounds, ascending
  enum class Action { add, set, observe } action = Action::add;
  double value = 0;
};

class CustomMetrics {
 public:
  // bad_name for a name that Prometheus does not allow or that is the server's own, bad_format for a change
  // that contradicts the family's kind, limit beyond 10,000 series.
  void apply(const MetricChange& change);
  std::string text() const;  // Prometheus text

 private:
  struct Series {
    double value = 0, sum = 0;
    std::vector<uint64_t> counts;  // by bucket, the last above all
  };
  struct Family {
    std::string help, kind;
    std::vector<double> buckets;
    std::map<std::string, Series> series;  // by label text
  };
  mutable std::mutex mutex_;
  std::map<std::string, Family> families_;
  size_t series_ = 0;
};

// Label text {name="value"}: names mended, values escaped.
std::string metric_labels(const std::map<std::string, std::string>& labels);
std::string escape_label(std::string_view value);
std::string label_name(std::string_view name);

}  // namespace pelton::serve
