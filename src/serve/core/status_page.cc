// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "serve/core/core.h"

namespace pelton::serve {
namespace {

std::string ms(uint64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", static_cast<double>(ns) * 1e-6);
  return text;
}

}  // namespace

std::string Core::status_page() const {
  std::string rows;
  for (const IndexEntry& e : repository_->index(false)) {
    rows += cat("<tr><td>", html_escape(e.name), "</td><td>", html_escape(e.version), "</td><td>",
                e.state ? to_string(*e.state) : "not loaded", e.reason.empty() ? "" : ": ",
                html_escape(e.reason), "</td>");
    if (e.state == ModelState::ready && repository_->ready(e.name, e.version)) {
      const ModelStats& s = repository_->find(e.name, e.version)->stats();
      const auto recent = s.recent.sorted_ns();
      rows += cat("<td>", s.success.count.load(), "</td><td>", s.fail.count.load(), "</td><td>",
                  s.pending.load(), "</td>");
      for (double q : {0.5, 0.9, 0.99, 0.999})
        rows += cat("<td>", recent.empty() ? "" : ms(quantile_ns(recent, q)), "</td>");
    } else {
      rows += "<td></td><td></td><td></td><td></td><td></td><td></td><td></td>";
    }
    rows += "</tr>\n";
  }
  return cat("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>",
             html_escape(options_.server_name),
             "</"
             "title><style>body{font-family:sans-serif;margin:2em}table{border-collapse:collapse}td,th{"
             "padding:.3em .8em;border-bottom:1px solid #ccc;"
             "text-align:left}</style></head><body><h1>",
             html_escape(options_.server_name), " ", html_escape(options_.server_version), "</h1><p>",
             ready() ? "Ready" : "Not ready",
             "</p><table><tr><th>Model</th><th>Version</th><th>State</th><th>Answered</th><th>Failed</"
             "th><th>Waiting</th>"
             "<th>p50 ms</th><th>p90 ms</th><th>p99 ms</th><th>p99.9 ms</th></tr>\n",
             rows, "</table></body></html>\n");
}

}  // namespace pelton::serve
