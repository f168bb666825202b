// SPDX-License-Identifier: Apache-2.0
#include "cli/layer_times.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "ir/op.h"

namespace pelton::cli {
namespace {

constexpr int kRuns = 15;

constexpr int64_t kLanes = 256;  // independent chains: enough for every vector unit of a core

using Chains = void (*)(float* x, int64_t steps);
void plain_chains(float* x, int64_t steps) {
  for (int64_t s = 0; s < steps; ++s)
    for (int64_t i = 0; i < kLanes; ++i) x[i] = x[i] * 0.9999f + 1e-7f;
}
#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void avx2_chains(float* x, int64_t steps) {
  for (int64_t s = 0; s < steps; ++s)
    for (int64_t i = 0; i < kLanes; ++i) x[i] = __builtin_fmaf(x[i], 0.9999f, 1e-7f);
}
[[gnu::target("avx512f,prefer-vector-width=512")]] void avx512_chains(float* x, int64_t steps) {
  for (int64_t s = 0; s < steps; ++s)
    for (int64_t i = 0; i < kLanes; ++i) x[i] = __builtin_fmaf(x[i], 0.9999f, 1e-7f);
}
#endif
Chains chains_of(device::CpuIsa isa) {
#if defined(__x86_64__)
  if (isa >= device::CpuIsa::avx512) return avx512_chains;
  if (isa >= device::CpuIsa::avx2) return avx2_chains;
#endif
  return plain_chains;
}

// Multiply-adds a second of all threads, two operations each.
double measure_gflops(const device::Target& target) {
  constexpr int64_t kChunks = 64, kSteps = 10000;
  const Chains chains = chains_of(target.isa);
  std::vector<float> sums(kChunks);
  auto work = [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      alignas(64) float x[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) x[i] = static_cast<float>(i) * 1e-6f;
      chains(x, kSteps);
      for (float v : x) sums[static_cast<size_t>(c)] += v;
    }
  };
  double best = 1e30;
  for (int i = 0; i < 3; ++i) {
    Stopwatch w;
    parallel_for(0, kChunks, 1, work);
    best = std::min(best, w.seconds());
  }
  return 2.0 * kLanes * kSteps * kChunks / best * 1e-9;
}

double measure_gbytes() {
  constexpr int64_t kBytes = int64_t{64} << 20, kGrain = int64_t{1} << 20;
  std::vector<char> from(kBytes, 1), to(kBytes, 0);
  double best = 1e30;
  for (int i = 0; i < 4; ++i) {
    Stopwatch w;
    parallel_for(0, kBytes, kGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(to.data() + begin, from.data() + begin, static_cast<size_t>(end - begin));
    });
    best = std::min(best, w.seconds());
  }
  return 2.0 * kBytes / best * 1e-9;
}

struct Sum {
  LayerTime layer;
  std::vector<double> runs;  // ms of each run
  double now = 0;
};

}  // namespace

LayerTimes measure_layers(const runtime::Executable& executable,
                          const std::function<void(const runtime::RunOptions&)>& run) {
  LayerTimes out;
  if (!executable.device()) {  // ceilings of the host say nothing about a device
    out.peak_gflops = measure_gflops(executable.target());
    out.peak_gbytes = measure_gbytes();
  }
  std::vector<Sum> sums;
  std::map<std::pair<const ir::Graph*, uint32_t>, size_t> index;
  runtime::RunOptions options;
  bool first = true;
  options.observe = [&](const runtime::StepEvent& e) {
    auto [it, fresh] = index.emplace(std::pair(&e.graph, e.node.index), sums.size());
    if (fresh) {
      sums.emplace_back();
      sums.back().layer = {e.graph.describe(e.node),
                           std::string(e.graph.op(e.node).name),
                           std::string(e.implementation),
                           0,
                           0,
                           0,
                           0,
                           0};
    }
    Sum& s = sums[it->second];
    s.now += static_cast<double>(e.end_ns - e.start_ns) * 1e-6;
    if (!first) return;
    ++s.layer.calls;
    s.layer.gflop += e.flops() * 1e-9;
    s.layer.gbyte += e.bytes() * 1e-9;
  };
  for (int i = 0; i < kRuns; ++i) {
    run(options);
    first = false;
    for (Sum& s : sums) {
      s.runs.push_back(s.now);
      s.now = 0;
    }
  }
  for (Sum& s : sums) {
    std::sort(s.runs.begin(), s.runs.end());
    LayerTime& l = s.layer;
    l.ms = s.runs[s.runs.size() / 2];
    double least =
        out.peak_gflops > 0 ? std::max(l.gflop / out.peak_gflops, l.gbyte / out.peak_gbytes) * 1e3 : 0;
    if (l.ms > 0) l.roofline = least / l.ms;
    out.total_ms += l.ms;
    out.layers.push_back(l);
  }
  return out;
}

void print_layers(const LayerTimes& times) {
  print_line("");
  Table table({"node", "implementation", "ms", "share", "GFLOP/s", "GB/s", "roofline"},
              {false, false, true, true, true, true, true});
  for (const LayerTime& l : times.layers) {
    double s = l.ms * 1e-3;
    table.row({l.calls > 1 ? cat(l.node, " x", l.calls) : l.node, l.implementation, fixed(l.ms, 4),
               cat(fixed(times.total_ms > 0 ? 100 * l.ms / times.total_ms : 0, 1), "%"),
               s > 0 ? fixed(l.gflop / s, 1) : "", s > 0 ? fixed(l.gbyte / s, 1) : "",
               times.peak_gflops > 0 ? cat(fixed(100 * l.roofline, 0), "%") : std::string()});
  }
  table.print();
  if (times.peak_gflops <= 0) return;
  print_line(cat("roofline: least time for the arithmetic at ", fixed(times.peak_gflops, 0),
                 " GFLOP/s or the bytes at ", fixed(times.peak_gbytes, 1),
                 " GB/s from memory (both measured now), over the time taken; ",
                 "above 100% where operands are in a cache, or a convolution makes fewer products than it is "
                 "defined by"));
}

nlohmann::json layers_json(const LayerTimes& times) {
  nlohmann::json out = nlohmann::json::array();
  for (const LayerTime& l : times.layers)
    out.push_back({{"node", l.node},
                   {"op", l.op},
                   {"implementation", l.implementation},
                   {"calls", l.calls},
                   {"ms", l.ms},
                   {"gflop", l.gflop},
                   {"gbyte", l.gbyte},
                   {"roofline", l.roofline}});
  return out;
}

}  // namespace pelton::cli
