// SPDX-License-Identifier: Apache-2.0
// What a run writes about itself: metrics as JSON lines, TensorBoard event files, a page with curves.
#pragma once

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pelton::train {

using Values = std::vector<std::pair<std::string, double>>;  // in the order they are shown

// Appends to files that exist; lines of updates after `from` are dropped first (a resumed run writes them
// again).
class MetricsFile {
 public:
  MetricsFile(const std::string& path, int64_t from);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  // {"kind": "train", "update": 12, "loss": ...}; numbers that are not finite become null.
  void add(const std::string& kind, int64_t update, const Values& values);

 private:
  std::string path_;
  std::FILE* file_;
};

// TFRecord of Event messages, one scalar each, as tensorboard reads them.
class EventFile {
 public:
  EventFile(const std::string& folder, double wall_time_s, int64_t from);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  void add(const std::string& kind, int64_t update, const Values& values, double wall_time_s);

 private:
  void record(const std::string& bytes);
  std::string path_;
  std::FILE* file_;
};

// One self-contained page from metrics.jsonl: a curve for each metric, the recipe, what the run was.
std::string report_html(const std::string& title, const std::string& metrics_jsonl, const std::string& recipe,
                        const Values& facts);

}  // namespace pelton::train
