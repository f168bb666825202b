// SPDX-License-Identifier: Apache-2.0
// What a run would take: the step compiled, described and, where it can run, timed on one batch.
#include <time.h>

#include <tuple>

#include "base/clock.h"
#include "ir/op.h"
#include "ir/text.h"
#include "train/trainer_impl.h"

namespace pelton::train {

namespace {

// Of a dry run: steps timed, at least and at most, and for how long.
constexpr size_t kFewestTimed = 3, kMostTimed = 1000;
constexpr double kTimedSeconds = 3, kTimedOnDevice = 1;
constexpr int kRound = 10, kUntilPlayed = 6;

double median(std::vector<double> v) {
  auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

// Processor time of this process so far.
double cpu_time() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

void describe(const ir::Graph& g, const std::vector<runtime::Choice>& choices, DryRun& r) {
  for (const ir::Slot& s : g.slots) {
    int64_t count = element_count(*as_dims(s.type.shape));
    r.state_bytes += byte_size(s.type.dtype, count);
    if (s.kind == ir::SlotKind::parameter) r.parameters += count;
    if (s.kind == ir::SlotKind::parameter && s.next) r.trained += count;
  }
  r.nodes = static_cast<int64_t>(g.node_count());
  for (const runtime::Choice& c : choices)
    if (c.implementation != runtime::kNothing) ++r.implementations[c.implementation];
  r.flops = step_flops(g);
  r.graph = ir::print(g, {.max_elements = 16});
}

}  // namespace

DryRun Trainer::dry_run() {
  Impl& m = *impl_;
  DryRun r;
  r.model = m.model->name();
  r.samples = m.loaders.train->samples();
  r.epoch_updates = m.epoch_updates;
  r.updates = m.updates;
  if (m.options.compile_only) {
    StepOptions o = m.step;
    o.draw = false;
    StepGraph graph = build_train_step(*m.model, o);
    runtime::Plan plan =
        compiler::compile(std::move(graph.graph), m.options.target, m.compile_options, m.registry);
    describe(plan.graph, plan.choices, r);
    return r;
  }
  m.start();
  const runtime::Executable& e = m.current->executable();
  const ir::Graph& g = e.graph();
  describe(g, e.choices(), r);
  TrainBatch b;
  m.loaders.train->next(b);
  const StepInputs in = m.step_inputs(b, false);
  try {
    // On a device, steps until they are played from a recording; then rounds of steps that follow one another
    // as they do in a run.
    const bool ahead = e.device() != nullptr;
    const int round = ahead ? kRound : 1;
    auto steps = [&](int count, bool resident) {
      for (int i = 0; i < count; ++i) {
        if (m.current->running() == m.current->most_running()) m.current->finish();
        m.current->start(in, m.key(), resident);
      }
      while (m.current->running() > 0) m.current->finish();
    };
    auto time = [&](bool resident) {
      std::vector<double> seconds, cpu_seconds;
      Stopwatch all;
      while (seconds.size() < kFewestTimed ||
             (all.seconds() < (ahead ? kTimedOnDevice : kTimedSeconds) && seconds.size() < kMostTimed)) {
        Stopwatch watch;
        double before = cpu_time();
        steps(round, resident);
        seconds.push_back(watch.seconds() / round);
        cpu_seconds.push_back((cpu_time() - before) / round);
      }
      return std::pair(median(std::move(seconds)), median(std::move(cpu_seconds)));
    };
    steps(ahead ? kUntilPlayed : 1, false);
    std::tie(r.step_seconds, r.step_cpu_seconds) = time(false);
    if (ahead) r.resident_seconds = time(true).first;
    // Before the times of nodes, which take a run of another kind with a batch of its own.
    if (e.device()) r.memory_bytes = e.device()->peak_bytes();
    r.node_seconds = m.current->times(in.to_host(), m.key());
  } catch (const Error& e) {
    m.check_memory_message(e);
    throw;
  }
  // What changes has a second buffer, which the next value goes to.
  int64_t changing = 0;
  for (const ir::Slot& s : g.slots)
    if (s.next) changing += byte_size(s.type.dtype, element_count(*as_dims(s.type.shape)));
  if (!e.device()) r.memory_bytes = e.memory().total() + r.state_bytes + changing;
  r.arena_bytes = e.memory().arena;
  r.scratch_bytes = e.memory().scratch;
  return r;
}

}  // namespace pelton::train
