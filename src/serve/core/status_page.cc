// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "base/clock.h"
#include "serve/core/core.h"

namespace pelton::serve {
namespace {

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--line:#d8dde3;--soft:#5d6874;--card:#f6f8fa;--good:#1a7f37;--bad:#c62f2f;--mid:#9a6700}
@media(prefers-color-scheme:dark){:root{--line:#333c46;--soft:#98a4b0;--card:#161b21;--good:#4ac26b;--bad:#ff7b72;--mid:#d8a531}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;max-width:78rem;margin:2rem auto;padding:0 1.25rem}
h1{font-size:1.5rem;margin:0}
h1 small{font-weight:400;color:var(--soft);font-size:1rem}
header{display:flex;flex-wrap:wrap;gap:.75rem 1rem;align-items:center;margin-bottom:1.25rem}
.state{display:inline-block;padding:.05rem .6rem;border-radius:1rem;border:1px solid;font-size:.85rem;white-space:nowrap}
.good{color:var(--good)}.bad{color:var(--bad)}.mid{color:var(--mid)}
dl{display:flex;flex-wrap:wrap;gap:.75rem;margin:0 0 1.25rem}
dl div{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.5rem 1rem;min-width:8rem}
dt{color:var(--soft);font-size:.8rem}
dd{margin:0;font-size:1.25rem;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto;border:1px solid var(--line);border-radius:.5rem}
table{border-collapse:collapse;width:100%}
th,td{padding:.45rem .8rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap;font-variant-numeric:tabular-nums}
tr:last-child td{border-bottom:0}
th{background:var(--card);font-size:.8rem;color:var(--soft);font-weight:600}
th:nth-child(-n+3),td:nth-child(-n+3){text-align:left}
td.why{text-align:left;white-space:normal;color:var(--soft);min-width:18rem}
p{color:var(--soft);font-size:.85rem}
)";

std::string fixed(double v, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, v);
  return text;
}

// Three digits that mean something: 0.042, 1.37, 12.4, 310.
std::string ms(uint64_t ns) {
  const double v = static_cast<double>(ns) * 1e-6;
  return fixed(v, v < 1 ? 3 : v < 10 ? 2 : v < 100 ? 1 : 0);
}

std::string state_cell(const IndexEntry& e) {
  if (!e.state) return "<td><span class=\"state\">not loaded</span></td>";
  const char* tone = "mid";
  const char* word = "";
  switch (*e.state) {
    case ModelState::ready:
      tone = "good", word = "ready";
      break;
    case ModelState::unavailable:
      tone = "bad", word = "unavailable";
      break;
    case ModelState::loading:
      word = "loading";
      break;
    case ModelState::unloading:
      word = "unloading";
      break;
  }
  return cat("<td><span class=\"state ", tone, "\">", word, "</span></td>");
}

std::string tile(std::string_view name, const std::string& value) {
  return cat("<div><dt>", name, "</dt><dd>", value, "</dd></div>");
}

}  // namespace

std::string Core::status_page() const {
  std::string rows;
  size_t models = 0, ready_models = 0;
  uint64_t answered = 0;
  int64_t waiting = 0;
  double per_second = 0;
  const auto now = Clock::now();
  std::string last;
  for (const IndexEntry& e : repository_->index(false)) {
    models += e.name != last;
    const bool serves = e.state == ModelState::ready && repository_->ready(e.name, e.version);
    ready_models += serves && e.name != last;
    last = e.name;
    rows += cat("<tr><td>", html_escape(e.name), "</td><td>", html_escape(e.version), "</td>", state_cell(e));
    if (!serves) {
      rows += cat("<td class=\"why\" colspan=\"9\">", html_escape(e.reason), "</td></tr>\n");
      continue;
    }
    std::shared_ptr<const Model> model;
    try {
      model = repository_->find(e.name, e.version);
    } catch (const Error&) {  // unloaded since the index was read
      rows += "<td class=\"why\" colspan=\"9\"></td></tr>\n";
      continue;
    }
    const ModelStats& s = model->stats();
    const uint64_t answers = s.success.count.load();
    const auto infer = s.stages[static_cast<size_t>(Stage::compute_infer)].ns.load();
    const LoadMeter::Load load = load_meter_.look(cat(e.name, "/", e.version), answers, infer, now);
    answered += answers;
    waiting += s.pending.load();
    per_second += load.per_second;
    rows +=
        cat("<td>", answers, "</td><td>", s.fail.count.load(), "</td><td>", s.pending.load(), "</td><td>",
            fixed(load.per_second, load.per_second < 10 ? 1 : 0), "</td><td>", fixed(load.busy, 2), "</td>");
    const auto recent = s.recent.sorted_ns();
    for (double q : {0.5, 0.9, 0.99, 0.999})
      rows += cat("<td>", recent.empty() ? "&ndash;" : ms(quantile_ns(recent, q)), "</td>");
    rows += "</tr>\n";
    if (!e.reason.empty())
      rows += cat("<tr><td></td><td class=\"why\" colspan=\"11\">", html_escape(e.reason), "</td></tr>\n");
  }
  const std::string name = html_escape(options_.server_name);
  const bool good = ready();
  return cat("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", name,
             "</title><meta name=\"viewport\" content=\"width=device-width\"><meta http-equiv=\"refresh\" "
             "content=\"5\"><link rel=\"icon\" href=\"data:,\"><style>",
             kStyle, "</style></head><body><header><h1>", name, " <small>",
             html_escape(options_.server_version), "</small></h1><span class=\"state ",
             good         ? "good\">Ready"
             : draining() ? "mid\">Stopping"
                          : "bad\">Not ready",
             "</span></header><dl>", tile("Models ready", cat(ready_models, " of ", models)),
             tile("Answered", cat(answered)),
             tile("Answers a second", fixed(per_second, per_second < 10 ? 1 : 0)),
             tile("Waiting", cat(waiting)),
             tile("Up for", duration_text(std::chrono::duration<double>(now - started_).count())),
             "</dl><div "
             "class=\"wide\"><table><thead><tr><th>Model</th><th>Version</th><th>State</th><th>Answered</th>"
             "<th>Failed</th><th>Waiting</th><th>Answers/s</th><th>At work</th><th>p50 ms</th><th>p90 ms</th>"
             "<th>p99 ms</th><th>p99.9 ms</th></tr></thead><tbody>\n",
             rows,
             "</tbody></table></div><p>Percentiles are exact, of the newest 4,096 requests of a model. At "
             "work: executions "
             "under way at a time. The page renews itself every five seconds.</p></body></html>\n");
}

}  // namespace pelton::serve
