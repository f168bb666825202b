// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>

#include "serve/core/stats.h"
#include "serve/loadtest/options.h"

namespace pelton::serve {
namespace {

constexpr double kQuantiles[] = {0.5, 0.9, 0.95, 0.99, 0.999};
constexpr const char* kNames[] = {"p50", "p90", "p95", "p99", "p99.9"};

double mean_us(const LoadResult& r) {
  double sum = 0;
  for (uint64_t l : r.latencies_ns) sum += static_cast<double>(l);
  return r.requests ? sum / static_cast<double>(r.requests) * 1e-3 : 0;
}

}  // namespace

std::string table_text(const std::vector<LoadResult>& results) {
  std::string out =
      "      load   requests/s    mean us     p50 us     p90 us     p95 us     p99 us   p99.9 us   errors\n";
  for (const LoadResult& r : results) {
    char load[32], line[256];
    if (r.rate > 0)
      std::snprintf(load, sizeof load, "%g/s%s", r.rate, r.poisson ? " p" : "");
    else
      std::snprintf(load, sizeof load, "%d", r.concurrency);
    std::snprintf(line, sizeof line, "%10s %12.1f %10.1f", load, r.throughput(), mean_us(r));
    out += line;
    for (double q : kQuantiles) {
      std::snprintf(line, sizeof line, " %10.1f", static_cast<double>(quantile_ns(r.latencies_ns, q)) * 1e-3);
      out += line;
    }
    out += cat(" ", std::string(8 - std::min<size_t>(8, cat(r.errors).size()), ' '), r.errors,
               r.stable ? "" : "  unstable", "\n");
    if (!r.first_error.empty()) out += cat("           first error: ", r.first_error, "\n");
  }
  return out;
}

std::string results_json(const LoadOptions& o, const std::vector<LoadResult>& results) {
  nlohmann::ordered_json j;
  j["url"] = o.url;
  j["model"] = o.model;
  j["results"] = nlohmann::ordered_json::array();
  for (const LoadResult& r : results) {
    nlohmann::ordered_json row;
    if (r.rate > 0)
      row["rate"] = r.rate, row["poisson"] = r.poisson;
    else
      row["concurrency"] = r.concurrency;
    row["throughput_per_s"] = r.throughput();
    row["requests"] = r.requests;
    row["errors"] = r.errors;
    row["seconds"] = r.seconds;
    row["stable"] = r.stable;
    row["latency_us"]["mean"] = mean_us(r);
    for (size_t i = 0; i < std::size(kQuantiles); ++i)
      row["latency_us"][kNames[i]] = static_cast<double>(quantile_ns(r.latencies_ns, kQuantiles[i])) * 1e-3;
    if (!r.first_error.empty()) row["first_error"] = r.first_error;
    j["results"].push_back(std::move(row));
  }
  j["final"] = true;
  return j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace pelton::serve
