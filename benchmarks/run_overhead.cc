// SPDX-License-Identifier: Apache-2.0
// What a bound run of a one-op plan costs beyond a direct call of its kernel: 16 f32 elements, one thread.
// Writes one JSON object; exit status 1 above the bar of 2 us.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "ir/text.h"
#include "register/registry.h"
#include "runtime/executable.h"

using namespace pelton;

namespace {

constexpr int kRounds = 51, kRuns = 20000;
constexpr double kBarNs = 2000;

// Nanoseconds a call, the least of several rounds.
template <class F>
double best_ns(F&& f) {
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    int64_t start = now_ns();
    for (int i = 0; i < kRuns; ++i) f();
    best = std::min(best, static_cast<double>(now_ns() - start) / kRuns);
  }
  return best;
}

}  // namespace

int main() {
  set_threads(1);
  device::Target target = device::detect_cpu(1);
  auto plan = std::make_shared<runtime::Plan>();
  plan->graph = ir::parse_graph("graph \"one\"(%x: f32[16]) {\n  %0 = relu(%x) : f32[16]\n  return %0\n}");
  plan->choices = runtime::choose_all(plan->graph, registry(), target);
  const backend::Implementation* implementation = registry().find(plan->choices[0].implementation);
  if (!implementation) {
    std::fprintf(stderr, "run_overhead: no kernel takes relu here\n");
    return 1;
  }
  alignas(64) float x[16] = {1, -1}, y[16];
  auto executable = runtime::Executable::create(plan, registry(), target);
  runtime::Context context = executable->context();
  context.bind_input(0, {16}, x);
  context.bind_output(0, y, sizeof y);

  const ir::Graph& g = executable->graph();
  SymbolValues symbols;
  backend::TensorSpec spec{DType::f32, {16}, {}};
  backend::Instance instance{g, g.order()[0], {spec}, {spec}, {Tensor()}, symbols, 1};
  auto kernel = implementation->prepare(instance, target);
  std::vector<std::byte> scratch(static_cast<size_t>(kernel->scratch_bytes()) + 64);
  const void* in[] = {x};
  void* out[] = {y};
  backend::RunArgs args{in, out, scratch.data(), {}};

  double direct = best_ns([&] { kernel->run(args); });
  double run = best_ns([&] { context.run_bound(); });
  std::printf(
      "{\"implementation\": \"%s\", \"direct_ns\": %.1f, \"run_ns\": %.1f, \"overhead_ns\": %.1f, "
      "\"bar_ns\": %.0f}\n",
      plan->choices[0].implementation.c_str(), direct, run, run - direct, kBarNs);
  return run - direct <= kBarNs ? 0 : 1;
}
