// SPDX-License-Identifier: Apache-2.0
// Counters of one model version, always on: a request adds to a few relaxed atomics and takes no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "serve/core/request.h"

namespace pelton::serve {

uint64_t ns_between(Clock::time_point a, Clock::time_point b);  // 0 if b is before a

struct Duration {
  std::atomic<uint64_t> count{0}, ns{0};
  void add(uint64_t elapsed_ns, uint64_t n = 1) {
    count.fetch_add(n, std::memory_order_relaxed);
    ns.fetch_add(elapsed_ns, std::memory_order_relaxed);
  }
};

// Classic Prometheus buckets, log-spaced from 50 us to 60 s, so that replicas add up.
class Histogram {
 public:
  static constexpr int kBuckets = 18;
  static constexpr uint64_t kFirstNs = 50'000;
  static const std::array<double, kBuckets>& bounds_seconds();
  void add(uint64_t ns) {
    // Most stages of most requests are short: the first bucket needs no search.
    counts_[ns <= kFirstNs ? 0 : search(ns)].fetch_add(1, std::memory_order_relaxed);
    sum_ns_.fetch_add(ns, std::memory_order_relaxed);
  }
  uint64_t bucket(int i) const {
    return counts_[static_cast<size_t>(i)].load(std::memory_order_relaxed);
  }  // kBuckets: above all
  uint64_t sum_ns() const { return sum_ns_.load(std::memory_order_relaxed); }

 private:
  static size_t search(uint64_t ns);
  std::array<std::atomic<uint64_t>, kBuckets + 1> counts_{};
  std::atomic<uint64_t> sum_ns_{0};
};

// The newest latencies, for exact percentiles.
class RecentLatencies {
 public:
  static constexpr size_t kSize = 4096;
  void add(uint64_t ns) {
    ring_[next_.fetch_add(1, std::memory_order_relaxed) % kSize].store(ns, std::memory_order_relaxed);
  }
  std::vector<uint64_t> sorted_ns() const;

 private:
  std::atomic<uint64_t> next_{0};
  std::array<std::atomic<uint64_t>, kSize> ring_{};
};
// The smallest value with at least a share q of the values at or below it; 0 if there are none.
uint64_t quantile_ns(const std::vector<uint64_t>& sorted, double q);

enum class FailReason : uint8_t { rejected, canceled, backend, other };
inline constexpr int kFailReasons = 4;
std::string_view to_string(FailReason r);  // "REJECTED", ...
FailReason fail_reason(ErrorCode code);

class ModelStats {
 public:
  // `stage_latencies`: keep the newest latencies of each stage too, for summaries.
  ModelStats(std::string model, std::string version, bool stage_latencies);

  void record_success(const Request& r, Clock::time_point end);
  void record_failure(FailReason reason, uint64_t ns);
  void record_cache(bool hit, uint64_t ns);
  void record_execution(uint64_t rows, uint64_t input_ns, uint64_t infer_ns, uint64_t output_ns);
  bool served() const;  // any success, failure or execution

  struct BatchRow {
    uint64_t count = 0, input_ns = 0, infer_ns = 0, output_ns = 0;
  };
  std::map<uint64_t, BatchRow> batches() const;

  const std::string model, version;
  // Responses of decoupled models, by their index in the request; ns since the request came.
  void record_response(uint32_t index, uint64_t ns, bool success);
  struct ResponseRow {
    uint64_t success = 0, success_ns = 0, fail = 0, fail_ns = 0;
  };
  std::map<uint32_t, ResponseRow> response_rows() const;
  // Of the latest load: further labels of the series, and the buckets of the first-response histogram.
  void configure(const std::map<std::string, std::string>& tags, bool decoupled,
                 const std::vector<double>& buckets_ms);
  std::map<std::string, std::string> tags() const;
  // Bucket bounds and their counts, then the count above all and the sum in ms; nullopt unless decoupled.
  struct FirstResponse {
    std::vector<double> bounds_ms;
    std::vector<uint64_t> counts;
    double sum_ms = 0;
  };
  std::optional<FirstResponse> first_response() const;

  Duration success, fail, cache_hit, cache_miss, stages[kStages];
  std::atomic<uint64_t> failures[kFailReasons]{};
  std::atomic<uint64_t> inferences{0}, executions{0};
  std::atomic<int64_t> pending{0};
  std::atomic<uint64_t> last_inference_ms{0};  // Unix time
  Histogram request_histogram, stage_histograms[kStages];
  RecentLatencies recent;
  // By stage, then of cache hits and cache misses; null: not kept.
  std::unique_ptr<std::array<RecentLatencies, kStages + 2>> recent_parts;

 private:
  // Batch sizes up to 64 have a slot of their own; larger ones share a map behind a lock.
  static constexpr size_t kSlots = 65;
  static constexpr uint32_t kResponses = 64;
  struct Slot {
    std::atomic<uint64_t> count{0}, input_ns{0}, infer_ns{0}, output_ns{0};
  };
  std::array<Slot, kSlots> slots_;
  mutable std::mutex mutex_;
  std::map<uint64_t, BatchRow> large_;
  std::map<uint32_t, ResponseRow> responses_;  // up to kResponses indices; later ones share the last
  std::map<std::string, std::string> tags_;
  std::optional<FirstResponse> first_response_;
};

// All statistics by model and version. Entries outlive unloads, so counters survive reloads.
class StatsTable {
 public:
  explicit StatsTable(bool stage_latencies = false) : stage_latencies_(stage_latencies) {}
  std::shared_ptr<ModelStats> get(const std::string& model, const std::string& version);
  std::vector<std::shared_ptr<ModelStats>> all() const;
  // Seconds that the last successful load of each model took.
  void set_load_seconds(const std::string& model, const std::string& version, double seconds);
  std::map<std::pair<std::string, std::string>, double> load_seconds() const;

 private:
  const bool stage_latencies_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<ModelStats>> entries_;
  std::map<std::pair<std::string, std::string>, double> load_seconds_;
};

struct MetricsOptions {
  bool counters = true;                   // sums of times
  std::vector<double> quantiles;          // of summaries; empty: no summaries
  bool gpu = true, cpu = true;            // state of the machine
  std::chrono::milliseconds interval{0};  // that a reading of it stands for
};

// Prometheus text. Only models that have served have series. Never blocks a request.
std::string metrics_text(const StatsTable& stats, const MetricsOptions& options = {});

}  // namespace pelton::serve
