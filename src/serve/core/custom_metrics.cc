// SPDX-License-Identifier: Apache-2.0
#include "serve/core/custom_metrics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "serve/core/services.h"

namespace pelton::serve {
namespace {

constexpr size_t kMaxSeries = 10'000;

bool letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool valid_name(std::string_view name) {
  return !name.empty() && name.size() <= 200 && letter(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return letter(c) || (c >= '0' && c <= '9') || c == ':'; });
}

}  // namespace

std::string escape_label(std::string_view v) {
  std::string out;
  for (char c : v) {
    if (c == '\\' || c == '"')
      out += '\\', out += c;
    else if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

std::string label_name(std::string_view name) {
  std::string out;
  for (char c : name) out += letter(c) || (c >= '0' && c <= '9') ? c : '_';
  if (out.empty() || (out[0] >= '0' && out[0] <= '9')) out.insert(out.begin(), '_');
  return out;
}

std::string metric_labels(const std::map<std::string, std::string>& labels) {
  std::string out;
  for (const auto& [name, value] : labels)
    out += cat(out.empty() ? "" : ",", label_name(name), "=\"", escape_label(value), "\"");
  return out;
}

void CustomMetrics::apply(const MetricChange& c) {
  if (!valid_name(c.family) || c.family.starts_with("nv_") || c.family.starts_with("pelton_"))
    fail(ErrorCode::bad_name, cat("'", c.family, "' cannot be the name of a model's metric"));
  if (c.kind != "counter" && c.kind != "gauge" && c.kind != "histogram")
    fail(ErrorCode::bad_format, cat("metric '", c.family, "' is of unknown kind '", c.kind, "'"));
  if (!std::is_sorted(c.buckets.begin(), c.buckets.end()) || c.buckets.size() > 256)
    fail(ErrorCode::bad_format,
         cat("the buckets of metric '", c.family, "' are not ascending, or more than 256"));
  std::lock_guard lock(mutex_);
  auto [it, fresh] = families_.try_emplace(c.family);
  Family& f = it->second;
  if (fresh) f.help = c.help, f.kind = c.kind, f.buckets = c.buckets;
  if (f.kind != c.kind)
    fail(ErrorCode::bad_format, cat("metric '", c.family, "' is a ", f.kind, ", not a ", c.kind));
  auto [s, new_series] = f.series.try_emplace(metric_labels(c.labels));
  if (new_series && ++series_ > kMaxSeries) {
    f.series.erase(s);
    --series_;
    fail(ErrorCode::limit, cat("models declare more than ", kMaxSeries, " series of metrics"));
  }
  Series& series = s->second;
  switch (c.action) {
    case MetricChange::Action::add:
      series.value += c.value;
      break;
    case MetricChange::Action::set:
      series.value = c.value;
      break;
    case MetricChange::Action::observe: {
      series.counts.resize(f.buckets.size() + 1);
      const auto b = std::lower_bound(f.buckets.begin(), f.buckets.end(), c.value);
      ++series.counts[static_cast<size_t>(b - f.buckets.begin())];
      series.sum += c.value;
      break;
    }
  }
}

std::string CustomMetrics::text() const {
  std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& [name, f] : families_) {
    std::string help = f.help;
    std::replace(help.begin(), help.end(), '\n', ' ');
    out += cat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", f.kind, "\n");
    for (const auto& [labels, s] : f.series) {
      const std::string braces = labels.empty() ? "" : cat("{", labels, "}");
      if (f.kind != "histogram") {
        out += cat(name, braces, " ", s.value, "\n");
        continue;
      }
      uint64_t total = 0;
      for (size_t i = 0; i < f.buckets.size() + 1; ++i) {
        total += i < s.counts.size() ? s.counts[i] : 0;
        out += cat(name, "_bucket{", labels, labels.empty() ? "" : ",", "le=\"",
                   i < f.buckets.size() ? cat(f.buckets[i]) : "+Inf", "\"} ", total, "\n");
      }
      out += cat(name, "_sum", braces, " ", s.sum, "\n", name, "_count", braces, " ", total, "\n");
    }
  }
  return out;
}

ServerServices::Calls ServerServices::calls() const {
  std::lock_guard lock(mutex_);
  if (!calls_.infer) fail(ErrorCode::busy, "the server is not running");
  return calls_;
}

}  // namespace pelton::serve
