// SPDX-License-Identifier: Apache-2.0
#include "compiler/int8.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>

#include "base/cat.h"
#include "base/progress.h"
#include "passes/absorb.h"
#include "passes/quantize.h"
#include "runtime/executable.h"

namespace pelton::compiler {

using namespace ir;

namespace {

int64_t largest(const Tensor& t, int64_t row, int64_t classes) {
  int64_t best = 0;
  for (int64_t c = 1; c < classes; ++c)
    if (t.get_double(row * classes + c) > t.get_double(row * classes + best)) best = c;
  return best;
}

std::string percent(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g%%", v);
  return text;
}

// Ranges of the data operands, in the order of `nodes`.
std::vector<Range> find_ranges(const Graph& graph, const std::vector<NodeId>& nodes,
                               const QuantizeOptions& options, const backend::Registry& registry,
                               const std::function<runtime::Plan(Graph)>& compile) {
  Graph watched = graph;
  std::map<uint32_t, size_t> output_of;  // by value
  const size_t first = graph.outputs.size();
  for (NodeId id : nodes) {
    const ValueId v = graph[id].inputs[0];
    if (output_of.emplace(v.index, first + output_of.size()).second)
      watched.add_output(v, cat("watched.", output_of.size()));
  }
  const runtime::Plan plan = compile(std::move(watched));
  std::vector<RangeFinder> finders(output_of.size());
  run_samples(plan, options.samples, registry, "calibrating", [&](const std::vector<Tensor>& results) {
    for (size_t i = 0; i < finders.size(); ++i)
      finders[i].see_bounds(results[first + i], plan.graph.output_name(first + i));
  });
  if (options.method != Calibration::minmax)
    run_samples(plan, options.samples, registry, "calibrating", [&](const std::vector<Tensor>& results) {
      for (size_t i = 0; i < finders.size(); ++i) finders[i].see_distribution(results[first + i]);
    });
  std::vector<Range> out;
  for (NodeId id : nodes)
    out.push_back(finders[output_of.at(graph[id].inputs[0].index) - first].range(options.method));
  return out;
}

}  // namespace

std::vector<std::vector<Tensor>> run_samples(const runtime::Plan& plan,
                                             const std::vector<std::vector<Tensor>>& samples,
                                             const backend::Registry& registry, std::string_view what,
                                             const std::function<void(const std::vector<Tensor>&)>& see) {
  auto executable =
      runtime::Executable::create(std::make_shared<const runtime::Plan>(plan), registry, plan.target);
  runtime::Context context = executable->context();
  Progress progress(std::string(what), static_cast<int64_t>(samples.size()));
  std::vector<std::vector<Tensor>> out;
  for (const std::vector<Tensor>& sample : samples) {
    std::vector<Tensor> results = context.run_tensors(sample);
    if (see)
      see(results);
    else
      out.push_back(std::move(results));
    progress.add();
  }
  return out;
}

double drop_percent(const std::vector<std::vector<Tensor>>& reference,
                    const std::vector<std::vector<Tensor>>& results) {
  double worst = 0;
  const size_t outputs = reference.empty() ? 0 : reference[0].size();
  for (size_t o = 0; o < outputs; ++o) {
    int64_t rows = 0, moved = 0;
    double error = 0, size = 0;
    bool classes = true;
    for (size_t s = 0; s < reference.size(); ++s) {
      const Tensor &want = reference[s][o], &got = results[s][o];
      if (!is_float(want.dtype())) continue;
      classes &= want.rank() == 2 && want.dims()[1] > 1;
      if (want.rank() == 2 && want.dims()[1] > 1)
        for (int64_t r = 0; r < want.dims()[0]; ++r, ++rows)
          moved += largest(want, r, want.dims()[1]) != largest(got, r, want.dims()[1]);
      for (int64_t i = 0; i < want.count(); ++i) {
        const double w = want.get_double(i), d = got.get_double(i) - w;
        error += d * d;
        size += w * w;
      }
    }
    const double relative = size > 0 ? 100 * std::sqrt(error / size) : error > 0 ? 100 : 0;
    const double drop =
        classes && rows ? 100.0 * static_cast<double>(moved) / static_cast<double>(rows) : relative;
    worst = std::isnan(drop) ? 100 : std::max(worst, drop);
  }
  return worst;
}

void quantize_graph(Graph& graph, const QuantizeOptions& options, const passes::Context& context,
                    const backend::Registry& registry, const std::function<runtime::Plan(Graph)>& compile,
                    std::vector<std::string>& notes) {
  if (options.samples.empty())
    fail(ErrorCode::usage, "int8 needs samples to find the ranges of values", "--precision int8",
         "name a folder of them with --calibrate");
  const std::vector<NodeId> nodes = passes::quantizable(graph);
  if (nodes.empty()) {
    notes.push_back("no convolution or product has constant f32 weights; nothing was quantised");
    return;
  }
  const std::vector<Range> ranges = find_ranges(graph, nodes, options, registry, compile);
  // The square of the rounding error of the data, against the data's own.
  std::vector<size_t> order(nodes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  auto harm = [&](size_t i) {
    const double step = (ranges[i].high - ranges[i].low) / 255;
    return ranges[i].mean_square > 0 ? step * step / ranges[i].mean_square : 0;
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return harm(a) > harm(b); });
  auto quantised_but = [&](size_t kept) {
    std::map<uint32_t, passes::QuantizeRange> chosen;
    for (size_t k = kept; k < order.size(); ++k)
      chosen[nodes[order[k]].index] = {ranges[order[k]].low, ranges[order[k]].high};
    Graph copy = graph;
    passes::quantize(copy, chosen, context);
    passes::absorb(copy, context);
    return copy;
  };
  std::vector<std::vector<Tensor>> reference;
  double drop = 0;
  for (size_t kept : {size_t{0}, nodes.size() / 16, nodes.size() / 8, nodes.size() / 4, nodes.size() / 2,
                      nodes.size() * 3 / 4}) {
    if (kept == 0 && !reference.empty()) continue;
    Graph copy = quantised_but(kept);
    if (reference.empty())
      reference = run_samples(compile(graph), options.samples, registry, "running in f32");
    const auto results = run_samples(compile(copy), options.samples, registry, "running in int8");
    drop = drop_percent(reference, results);
    if (options.max_drop >= 0 && drop > options.max_drop) continue;
    notes.push_back(cat(nodes.size() - kept, " of ", nodes.size(), " contractions in int8, drop ",
                        percent(drop), " on ", options.samples.size(), " samples"));
    graph = std::move(copy);
    return;
  }
  fail(ErrorCode::numeric,
       cat("with a quarter of the ", nodes.size(), " contractions in int8 the result still loses ",
           percent(drop), ", more than ", percent(options.max_drop)),
       "--max-drop", "allow more, calibrate on more samples, or use --precision bf16");
}

}  // namespace pelton::compiler
