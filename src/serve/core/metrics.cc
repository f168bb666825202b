// SPDX-License-Identifier: Apache-2.0
// The scrape page. Names, types and labels of the nv_ families are those that existing dashboards query.
#include <algorithm>
#include <functional>
#include <set>

#include "base/cat.h"
#include "serve/core/custom_metrics.h"
#include "serve/core/stats.h"

namespace pelton::serve {
namespace {

// A tag as a label: no name of the server's own is taken.
std::string tag_name(std::string_view tag) {
  std::string out = label_name(tag);
  for (const char* own : {"model", "version", "reason", "stage", "le", "quantile"})
    if (out == own) out += "_tag";
  return out;
}

constexpr std::string_view kStageNames[] = {"queue", "compute_input", "compute_infer", "compute_output"};

struct Series {
  std::shared_ptr<ModelStats> stats;
  std::string labels;  // model="m",version="1"
};

void head(std::string& out, std::string_view name, std::string_view type, std::string_view help) {
  out += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
}

void family(std::string& out, const std::vector<Series>& series, std::string_view name, std::string_view type,
            std::string_view help, const std::function<uint64_t(const ModelStats&)>& value) {
  head(out, name, type, help);
  for (const Series& s : series) out += cat(name, "{", s.labels, "} ", value(*s.stats), "\n");
}

void histogram_rows(std::string& out, const Series& s, std::string_view stage, const Histogram& h) {
  uint64_t total = 0;
  const std::string labels = cat(s.labels, ",stage=\"", stage, "\"");
  for (int i = 0; i <= Histogram::kBuckets; ++i) {
    total += h.bucket(i);
    const std::string bound =
        i < Histogram::kBuckets ? cat(Histogram::bounds_seconds()[static_cast<size_t>(i)]) : "+Inf";
    out += cat("pelton_request_duration_seconds_bucket{", labels, ",le=\"", bound, "\"} ", total, "\n");
  }
  out +=
      cat("pelton_request_duration_seconds_sum{", labels, "} ", static_cast<double>(h.sum_ns()) * 1e-9, "\n");
  out += cat("pelton_request_duration_seconds_count{", labels, "} ", total, "\n");
}

void summary(std::string& out, const std::vector<Series>& series, const MetricsOptions& o,
             std::string_view name, std::string_view help,
             const std::function<const RecentLatencies&(const ModelStats&)>& recent,
             const std::function<const Duration&(const ModelStats&)>& all) {
  head(out, name, "summary", help);
  for (const Series& s : series) {
    const auto sorted = recent(*s.stats).sorted_ns();
    for (double q : o.quantiles)
      out += cat(name, "{", s.labels, ",quantile=\"", q, "\"} ",
                 sorted.empty() ? std::string("NaN") : cat(quantile_ns(sorted, q) / 1000), "\n");
    out += cat(name, "_sum{", s.labels, "} ", all(*s.stats).ns.load() / 1000, "\n", name, "_count{", s.labels,
               "} ", all(*s.stats).count.load(), "\n");
  }
}

// Of the newest requests, exactly.
void summaries(std::string& out, const std::vector<Series>& series, const MetricsOptions& o) {
  summary(
      out, series, o, "nv_inference_request_summary_us", "Time from arrival to answer, in microseconds",
      [](const ModelStats& s) -> const RecentLatencies& { return s.recent; },
      [](const ModelStats& s) -> const Duration& { return s.success; });
  for (size_t stage = 0; stage < kStages; ++stage)
    summary(
        out, series, o, cat("nv_inference_", kStageNames[stage], "_summary_us"),
        cat("Time in stage ", kStageNames[stage], ", in microseconds"),
        [&](const ModelStats& s) -> const RecentLatencies& { return (*s.recent_parts)[stage]; },
        [&](const ModelStats& s) -> const Duration& { return s.stages[stage]; });
  summary(
      out, series, o, "nv_cache_hit_summary_per_model",
      "Time of requests answered from the response cache, in microseconds",
      [](const ModelStats& s) -> const RecentLatencies& { return (*s.recent_parts)[kStages]; },
      [](const ModelStats& s) -> const Duration& { return s.cache_hit; });
  summary(
      out, series, o, "nv_cache_miss_summary_per_model",
      "Time of requests that the response cache did not hold, in microseconds",
      [](const ModelStats& s) -> const RecentLatencies& { return (*s.recent_parts)[kStages + 1]; },
      [](const ModelStats& s) -> const Duration& { return s.cache_miss; });
}

}  // namespace

std::string metrics_text(const StatsTable& table, const MetricsOptions& options) {
  std::vector<Series> series;
  for (auto& s : table.all())
    if (s->served()) {
      std::string labels =
          cat("model=\"", escape_label(s->model), "\",version=\"", escape_label(s->version), "\"");
      std::set<std::string> names;
      for (const auto& [tag, value] : s->tags()) {
        std::string name = tag_name(tag);
        while (!names.insert(name).second) name += "_tag";  // "a-b" and "a.b" are a_b both
        labels += cat(",", name, "=\"", escape_label(value), "\"");
      }
      series.push_back({s, std::move(labels)});
    }

  std::string out;
  family(out, series, "nv_inference_request_success", "counter", "Requests answered with a result",
         [](const ModelStats& s) { return s.success.count.load(); });
  head(out, "nv_inference_request_failure", "counter", "Requests answered with an error, by reason");
  for (const Series& s : series)
    for (int r = 0; r < kFailReasons; ++r)
      out += cat("nv_inference_request_failure{", s.labels, ",reason=\"",
                 to_string(static_cast<FailReason>(r)), "\"} ", s.stats->failures[r].load(), "\n");
  family(out, series, "nv_inference_count", "counter", "Inferences, a batch of n counting n",
         [](const ModelStats& s) { return s.inferences.load(); });
  family(out, series, "nv_inference_exec_count", "counter", "Executions, a batch counting 1",
         [](const ModelStats& s) { return s.executions.load(); });
  if (options.counters)
    family(out, series, "nv_inference_request_duration_us", "counter",
           "Time from arrival to answer, summed, in microseconds",
           [](const ModelStats& s) { return s.success.ns.load() / 1000; });
  for (int stage = 0; options.counters && stage < kStages; ++stage)
    family(out, series, cat("nv_inference_", kStageNames[stage], "_duration_us"), "counter",
           cat("Time in stage ", kStageNames[stage], ", summed, in microseconds"),
           [&](const ModelStats& s) { return s.stages[stage].ns.load() / 1000; });
  head(out, "nv_inference_pending_request_count", "gauge", "Requests accepted and not yet executing");
  for (const Series& s : series)
    out += cat("nv_inference_pending_request_count{", s.labels, "} ", s.stats->pending.load(), "\n");
  family(out, series, "nv_cache_num_hits_per_model", "counter", "Requests answered from the response cache",
         [](const ModelStats& s) { return s.cache_hit.count.load(); });
  family(out, series, "nv_cache_num_misses_per_model", "counter",
         "Requests that the response cache did not hold",
         [](const ModelStats& s) { return s.cache_miss.count.load(); });
  family(out, series, "nv_cache_hit_duration_per_model", "counter",
         "Time of requests answered from the response cache, summed, in microseconds",
         [](const ModelStats& s) { return s.cache_hit.ns.load() / 1000; });
  family(out, series, "nv_cache_miss_duration_per_model", "counter",
         "Time of requests that the response cache did not hold, summed, in microseconds",
         [](const ModelStats& s) { return s.cache_miss.ns.load() / 1000; });
  head(out, "nv_inference_first_response_histogram_ms", "histogram",
       "Time from arrival to the first response of decoupled models");
  for (const Series& s : series) {
    const auto h = s.stats->first_response();
    if (!h) continue;
    uint64_t total = 0;
    for (size_t i = 0; i < h->counts.size(); ++i) {
      total += h->counts[i];
      out += cat("nv_inference_first_response_histogram_ms_bucket{", s.labels, ",le=\"",
                 i < h->bounds_ms.size() ? cat(h->bounds_ms[i]) : "+Inf", "\"} ", total, "\n");
    }
    out += cat("nv_inference_first_response_histogram_ms_sum{", s.labels, "} ", h->sum_ms, "\n");
    out += cat("nv_inference_first_response_histogram_ms_count{", s.labels, "} ", total, "\n");
  }
  head(out, "nv_model_load_duration_secs", "gauge", "Time that the last load of the model took");
  for (const auto& [key, seconds] : table.load_seconds())
    out += cat("nv_model_load_duration_secs{model=\"", escape_label(key.first), "\",version=\"",
               escape_label(key.second), "\"} ", seconds, "\n");

  head(out, "pelton_request_duration_seconds", "histogram",
       "Time of a request as a whole (stage request) and of its stages");
  for (const Series& s : series) {
    histogram_rows(out, s, "request", s.stats->request_histogram);
    for (int stage = 0; stage < kStages; ++stage)
      histogram_rows(out, s, kStageNames[stage], s.stats->stage_histograms[stage]);
  }

  if (!options.quantiles.empty()) summaries(out, series, options);
  return out;
}

}  // namespace pelton::serve
