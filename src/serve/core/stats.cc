// SPDX-License-Identifier: Apache-2.0
#include "serve/core/stats.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"

namespace pelton::serve {
namespace {

const std::array<uint64_t, Histogram::kBuckets>& bounds_ns() {
  static const auto bounds = [] {
    std::array<uint64_t, Histogram::kBuckets> b{};
    for (size_t i = 0; i < b.size(); ++i)
      b[i] = static_cast<uint64_t>(std::llround(Histogram::bounds_seconds()[i] * 1e9));
    return b;
  }();
  return bounds;
}

}  // namespace

uint64_t ns_between(Clock::time_point a, Clock::time_point b) {
  return b > a ? static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(b - a).count())
               : 0;
}

const std::array<double, Histogram::kBuckets>& Histogram::bounds_seconds() {
  static const auto bounds = [] {
    std::array<double, kBuckets> b{};
    for (int i = 0; i < kBuckets; ++i) {
      const double exact =
          kFirstNs * 1e-9 * std::pow(60.0 / (kFirstNs * 1e-9), static_cast<double>(i) / (kBuckets - 1));
      const double unit =
          std::pow(10.0, std::floor(std::log10(exact)) - 2);  // three digits, so that labels stay short
      b[static_cast<size_t>(i)] = std::round(exact / unit) * unit;
    }
    return b;
  }();
  return bounds;
}

size_t Histogram::search(uint64_t ns) {
  const auto& b = bounds_ns();
  return static_cast<size_t>(std::lower_bound(b.begin(), b.end(), ns) - b.begin());
}

std::vector<uint64_t> RecentLatencies::sorted_ns() const {
  const size_t n = std::min<uint64_t>(next_.load(std::memory_order_relaxed), kSize);
  std::vector<uint64_t> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = ring_[i].load(std::memory_order_relaxed);
  std::sort(out.begin(), out.end());
  return out;
}

uint64_t quantile_ns(const std::vector<uint64_t>& sorted, double q) {
  if (sorted.empty()) return 0;
  const double rank = std::ceil(q * static_cast<double>(sorted.size()));
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(std::max(1.0, rank)) - 1)];
}

std::string_view to_string(FailReason r) {
  static constexpr std::string_view kNames[] = {"REJECTED", "CANCELED", "BACKEND", "OTHER"};
  return kNames[static_cast<size_t>(r)];
}
FailReason fail_reason(ErrorCode code) {
  switch (code) {
    case ErrorCode::busy:
    case ErrorCode::limit:
    case ErrorCode::deadline:
      return FailReason::rejected;
    case ErrorCode::cancelled:
      return FailReason::canceled;
    case ErrorCode::bad_type:
    case ErrorCode::bad_shape:
    case ErrorCode::bad_name:
    case ErrorCode::usage:
    case ErrorCode::not_found:
    case ErrorCode::bad_format:
      return FailReason::other;
    default:
      return FailReason::backend;
  }
}

void ModelStats::record_success(const Request& r, Clock::time_point end) {
  const uint64_t total = ns_between(r.arrival, end);
  const uint64_t ns[kStages] = {ns_between(r.enqueued, r.compute_start),
                                ns_between(r.compute_start, r.input_end),
                                ns_between(r.input_end, r.infer_end), ns_between(r.infer_end, r.compute_end)};
  success.add(total);
  request_histogram.add(total);
  for (size_t i = 0; i < kStages; ++i) {
    stages[i].add(ns[i]);
    stage_histograms[i].add(ns[i]);
    if (recent_parts) (*recent_parts)[i].add(ns[i]);
  }
  recent.add(total);
  inferences.fetch_add(static_cast<uint64_t>(r.rows), std::memory_order_relaxed);
}

void ModelStats::record_cache(bool hit, uint64_t ns) {
  (hit ? cache_hit : cache_miss).add(ns);
  if (recent_parts) (*recent_parts)[hit ? kStages : kStages + 1].add(ns);
}

void ModelStats::record_failure(FailReason reason, uint64_t ns) {
  fail.add(ns);
  failures[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
}

void ModelStats::record_execution(uint64_t rows, uint64_t input_ns, uint64_t infer_ns, uint64_t output_ns) {
  executions.fetch_add(1, std::memory_order_relaxed);
  last_inference_ms.store(static_cast<uint64_t>(unix_time_ns() / 1000000), std::memory_order_relaxed);
  if (rows < kSlots) {
    Slot& s = slots_[rows];
    s.count.fetch_add(1, std::memory_order_relaxed);
    s.input_ns.fetch_add(input_ns, std::memory_order_relaxed);
    s.infer_ns.fetch_add(infer_ns, std::memory_order_relaxed);
    s.output_ns.fetch_add(output_ns, std::memory_order_relaxed);
    return;
  }
  std::lock_guard lock(mutex_);
  if (large_.size() >= 1024 && !large_.contains(rows)) return;  // bounded; the totals above still count it
  BatchRow& row = large_[rows];
  row.count += 1;
  row.input_ns += input_ns;
  row.infer_ns += infer_ns;
  row.output_ns += output_ns;
}

void ModelStats::record_response(uint32_t index, uint64_t ns, bool success) {
  std::lock_guard lock(mutex_);
  ResponseRow& row = responses_[std::min(index, kResponses - 1)];
  (success ? row.success : row.fail) += 1;
  (success ? row.success_ns : row.fail_ns) += ns;
  if (index == 0 && first_response_) {
    const double ms = static_cast<double>(ns) * 1e-6;
    const auto& b = first_response_->bounds_ms;
    ++first_response_->counts[static_cast<size_t>(std::lower_bound(b.begin(), b.end(), ms) - b.begin())];
    first_response_->sum_ms += ms;
  }
}

std::map<uint32_t, ModelStats::ResponseRow> ModelStats::response_rows() const {
  std::lock_guard lock(mutex_);
  return responses_;
}

void ModelStats::configure(const std::map<std::string, std::string>& tags, bool decoupled,
                           const std::vector<double>& buckets_ms) {
  const std::vector<double> bounds =
      buckets_ms.empty() ? std::vector<double>{100, 500, 2000, 5000} : buckets_ms;
  std::lock_guard lock(mutex_);
  tags_ = tags;
  if (!decoupled)
    first_response_.reset();
  else if (!first_response_ || first_response_->bounds_ms != bounds)
    first_response_ = FirstResponse{bounds, std::vector<uint64_t>(bounds.size() + 1), 0};
}

std::map<std::string, std::string> ModelStats::tags() const {
  std::lock_guard lock(mutex_);
  return tags_;
}
std::optional<ModelStats::FirstResponse> ModelStats::first_response() const {
  std::lock_guard lock(mutex_);
  return first_response_;
}

bool ModelStats::served() const {
  return success.count.load() || fail.count.load() || executions.load();
}

std::map<uint64_t, ModelStats::BatchRow> ModelStats::batches() const {
  std::map<uint64_t, BatchRow> out;
  for (size_t i = 0; i < kSlots; ++i)
    if (uint64_t n = slots_[i].count.load())
      out[i] = {n, slots_[i].input_ns.load(), slots_[i].infer_ns.load(), slots_[i].output_ns.load()};
  std::lock_guard lock(mutex_);
  out.insert(large_.begin(), large_.end());
  return out;
}

ModelStats::ModelStats(std::string model, std::string version, bool stage_latencies)
    : model(std::move(model)), version(std::move(version)) {
  if (stage_latencies) recent_parts = std::make_unique<std::array<RecentLatencies, kStages + 2>>();
}

std::shared_ptr<ModelStats> StatsTable::get(const std::string& model, const std::string& version) {
  std::lock_guard lock(mutex_);
  auto& entry = entries_[{model, version}];
  if (!entry) entry = std::make_shared<ModelStats>(model, version, stage_latencies_);
  return entry;
}
std::vector<std::shared_ptr<ModelStats>> StatsTable::all() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<ModelStats>> out;
  out.reserve(entries_.size());
  for (const auto& [key, entry] : entries_) out.push_back(entry);
  return out;
}
void StatsTable::set_load_seconds(const std::string& model, const std::string& version, double seconds) {
  std::lock_guard lock(mutex_);
  load_seconds_[{model, version}] = seconds;
}
std::map<std::pair<std::string, std::string>, double> StatsTable::load_seconds() const {
  std::lock_guard lock(mutex_);
  return load_seconds_;
}

}  // namespace pelton::serve
