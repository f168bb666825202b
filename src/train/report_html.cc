// SPDX-License-Identifier: Apache-2.0
// The page of a run. Curves are drawn as SVG here, so the page needs no script and no network.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/cat.h"
#include "train/report.h"

namespace pelton::train {

namespace {

struct Curve {
  std::string name, colour;
  std::vector<std::pair<double, double>> points;
};
struct Chart {
  std::string metric;
  std::vector<Curve> curves;  // of train and of evaluation
};

constexpr double kWidth = 560, kHeight = 240, kLeft = 64, kRight = 12, kTop = 12, kBottom = 34;
constexpr size_t kMaxPoints = 1200;

std::string escape(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string fixed(double v) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.1f", v);
  return buffer;
}
std::string short_number(double v) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.4g", v);
  return buffer;
}

// Means of runs of points, so that a long run stays readable and the page small.
std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points) {
  size_t step = (points.size() + kMaxPoints - 1) / kMaxPoints;
  if (step <= 1) return points;
  std::vector<std::pair<double, double>> out;
  for (size_t i = 0; i < points.size(); i += step) {
    size_t n = std::min(step, points.size() - i);
    double x = 0, y = 0;
    for (size_t k = 0; k < n; ++k) x += points[i + k].first, y += points[i + k].second;
    out.emplace_back(x / static_cast<double>(n), y / static_cast<double>(n));
  }
  return out;
}

// A round step that gives about `count` ticks.
double tick_step(double span, int count) {
  if (!(span > 0)) return 1;
  double rough = span / count, power = std::pow(10.0, std::floor(std::log10(rough)));
  for (double m : {1.0, 2.0, 5.0})
    if (m * power >= rough) return m * power;
  return 10 * power;
}

std::string draw(const Chart& chart) {
  double x0 = 1e300, x1 = -1e300, y0 = 1e300, y1 = -1e300;
  for (const Curve& c : chart.curves)
    for (auto [x, y] : c.points) {
      x0 = std::min(x0, x), x1 = std::max(x1, x);
      y0 = std::min(y0, y), y1 = std::max(y1, y);
    }
  if (x1 <= x0) x1 = x0 + 1;
  double pad = y1 > y0 ? 0.05 * (y1 - y0) : std::max(std::abs(y1) * 0.1, 1e-6);
  y0 -= pad, y1 += pad;
  auto px = [&](double x) { return kLeft + (x - x0) / (x1 - x0) * (kWidth - kLeft - kRight); };
  auto py = [&](double y) { return kHeight - kBottom - (y - y0) / (y1 - y0) * (kHeight - kTop - kBottom); };
  std::string out = cat("<figure><figcaption>", escape(chart.metric));
  for (const Curve& c : chart.curves)
    append(out, cat(" <span class=\"key\" style=\"--c:", c.colour, "\">", escape(c.name), " ",
                    short_number(c.points.back().second), "</span>"));
  append(out, cat("</figcaption><svg viewBox=\"0 0 ", fixed(kWidth), " ", fixed(kHeight),
                  "\" role=\"img\" aria-label=\"", escape(chart.metric), " over updates\">"));
  double ys = tick_step(y1 - y0, 5), xs = tick_step(x1 - x0, 6);
  for (double y = std::ceil(y0 / ys) * ys; y <= y1; y += ys)
    append(out, cat("<path class=\"grid\" d=\"M", fixed(kLeft), " ", fixed(py(y)), "H",
                    fixed(kWidth - kRight), "\"/><text class=\"y\" x=\"", fixed(kLeft - 6), "\" y=\"",
                    fixed(py(y) + 4), "\">", short_number(std::abs(y) < 1e-12 * ys ? 0 : y), "</text>"));
  for (double x = std::ceil(x0 / xs) * xs; x <= x1; x += xs)
    append(out, cat("<text class=\"x\" x=\"", fixed(px(x)), "\" y=\"", fixed(kHeight - 14), "\">",
                    short_number(x), "</text>"));
  for (const Curve& c : chart.curves) {
    std::string path;
    for (auto [x, y] : thinned(c.points))
      append(path, cat(path.empty() ? "M" : "L", fixed(px(x)), " ", fixed(py(y))));
    append(out, cat("<path class=\"curve\" style=\"--c:", c.colour, "\" d=\"", path, "\"/>"));
    if (c.points.size() <= 40)
      for (auto [x, y] : c.points)
        append(out, cat("<circle style=\"--c:", c.colour, "\" cx=\"", fixed(px(x)), "\" cy=\"", fixed(py(y)),
                        "\" r=\"3\"/>"));
  }
  return out + "</svg></figure>\n";
}

std::vector<Chart> read_charts(const std::string& jsonl) {
  std::vector<Chart> charts;
  for (size_t at = 0; at < jsonl.size();) {
    size_t end = std::min(jsonl.find('\n', at), jsonl.size());
    auto line = nlohmann::ordered_json::parse(jsonl.substr(at, end - at), nullptr, false);
    at = end + 1;
    if (!line.is_object() || !line.contains("update") || !line.contains("kind")) continue;
    std::string kind = line["kind"].get<std::string>();
    double x = line["update"].get<double>();
    for (const auto& [key, v] : line.items()) {
      if (key == "update" || key == "kind" || key == "epoch" || !v.is_number()) continue;
      auto chart =
          std::find_if(charts.begin(), charts.end(), [&](const Chart& c) { return c.metric == key; });
      if (chart == charts.end()) chart = charts.insert(charts.end(), {key, {}});
      auto curve = std::find_if(chart->curves.begin(), chart->curves.end(),
                                [&](const Curve& c) { return c.name == kind; });
      if (curve == chart->curves.end())
        curve =
            chart->curves.insert(chart->curves.end(), {kind, kind == "train" ? "#3b6fb6" : "#c4602a", {}});
      curve->points.emplace_back(x, v.get<double>());
    }
  }
  return charts;
}

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--ink:#222;--soft:#667;--line:#d8dce3;--page:#fff;--card:#f7f8fa}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ec;--soft:#99a;--line:#3a3f4a;--page:#16181d;--card:#1e2128}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:1200px;margin:0 auto;padding:24px}
h1{font-size:22px}h2{font-size:17px;margin-top:32px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:16px}
figure{margin:0;padding:12px;background:var(--card);border:1px solid var(--line);border-radius:6px}
figcaption{font-weight:600}.key{font-weight:400;margin-left:12px}.key::before{content:"";display:inline-block;width:14px;height:3px;margin-right:5px;vertical-align:middle;background:var(--c)}
svg{width:100%;height:auto}.grid{stroke:var(--line);fill:none}.curve{stroke:var(--c);stroke-width:1.6;fill:none;stroke-linejoin:round}circle{fill:var(--c)}
text{fill:var(--soft);font-size:11px}.y{text-anchor:end}.x{text-anchor:middle}
table{border-collapse:collapse}td{padding:3px 18px 3px 0;border-bottom:1px solid var(--line)}td+td{text-align:right;font-variant-numeric:tabular-nums}
pre{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:12px;overflow:auto})";

}  // namespace

std::string report_html(const std::string& title, const std::string& metrics, const std::string& recipe,
                        const Values& facts) {
  std::string out =
      cat("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">",
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>", escape(title),
          "</title><style>", kStyle, "</style></head><body>\n<h1>", escape(title), "</h1>\n<table>");
  for (const auto& [name, v] : facts)
    append(out, cat("<tr><td>", escape(name), "</td><td>", short_number(v), "</td></tr>"));
  append(out, "</table>\n<h2>Curves</h2>\n<div class=\"charts\">\n");
  for (const Chart& c : read_charts(metrics)) append(out, draw(c));
  append(out, cat("</div>\n<h2>Recipe</h2>\n<pre>", escape(recipe), "</pre>\n</body></html>\n"));
  return out;
}

}  // namespace pelton::train
