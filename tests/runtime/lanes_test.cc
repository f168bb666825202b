// SPDX-License-Identifier: Apache-2.0
// Branches beside each other in a recording: which get lanes, and that what they compute does not depend on
// the order in which the device gets to them (fake_device.h plays the furthest one).
#include "runtime/lanes.h"

#include <doctest/doctest.h>

#include "base/philox.h"
#include "interp/interpreter.h"
#include "ir/builder.h"
#include "ir/text.h"
#include "runtime/executable.h"
#include "runtime/fake_registry.h"
#include "runtime/region.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::runtime;
using pelton::test::fake;
using pelton::test::fake_registry;

namespace {

std::shared_ptr<const Executable> load(Graph graph, int64_t least_branch_ns) {
  auto plan = std::make_shared<Plan>();
  plan->graph = std::move(graph);
  plan->target = device::cuda_target(90);
  ExecutableOptions options;
  options.check_memory = true;
  options.least_branch_ns = least_branch_ns;
  return Executable::create(plan, fake_registry(), plan->target, options);
}

// Two chains of `length` steps of x and one sum of both.
Graph two_branches(int length, const Dims& dims) {
  Graph g("branches");
  Builder b(g);
  const ValueId x = g.add_input(Type::tensor(DType::f32, to_shape(dims)));
  ValueId left = x, right = x;
  for (int i = 0; i < length; ++i) left = b.add(left, x);
  for (int i = 0; i < length; ++i) right = b.mul(right, x);
  g.add_output(b.add(left, right));
  return g;
}

// Streams that join when the graph is recorded.
int forks(Graph graph, const Dims& dims, int64_t least_branch_ns) {
  const auto e = load(std::move(graph), least_branch_ns);
  Context c = e->context();
  const int before = fake().forks;
  Tensor x(DType::f32, dims);
  for (int64_t i = 0; i < x.count(); ++i) x.set_double(i, 1 + static_cast<double>(i % 7) * 0.125);
  for (int round = 0; round < 3; ++round) {
    const auto got = c.run({x}), expected = interp::run(e->graph(), {x}).outputs;
    CHECK(got[0].tensor.same_bytes(expected[0].tensor));
  }
  return fake().forks - before;
}

// Sums and products of values drawn from those before.
Graph drawn(uint64_t seed, int steps) {
  Graph g("drawn");
  Builder b(g);
  std::vector<ValueId> values;
  for (int i = 0; i < 2; ++i) values.push_back(g.add_input(Type::tensor(DType::f32, {Dim(4), Dim(8)})));
  const RandomStream random{seed};
  uint64_t drawn_so_far = 0;
  auto next = [&] { return random.bits(drawn_so_far++); };
  auto pick = [&] {
    // Mostly recent ones, so that chains grow.
    const size_t most = std::min<size_t>(values.size(), 6);
    return values[values.size() - 1 - next() % most];
  };
  for (int i = 0; i < steps; ++i) {
    const ValueId left = pick(), right = pick();
    switch (next() % 3) {
      case 0:
        values.push_back(b.add(left, right));
        break;
      case 1:
        values.push_back(b.op("neg", {left}));
        break;
      default:
        values.push_back(b.mul(left, b.op("neg", {right})));
    }
  }
  for (size_t i = values.size() - 3; i < values.size(); ++i) g.add_output(values[i]);
  return g;
}

}  // namespace

TEST_CASE("lanes: long branches run beside each other, short ones and long steps one by one") {
  const Dims small = {4, 4}, large = {1 << 11, 1 << 11};
  CHECK(forks(two_branches(12, small), small, 20000) == 1);
  CHECK(forks(two_branches(2, small), small, 20000) == 0);
  CHECK(forks(two_branches(2, small), small, 0) == 1);
  CHECK(forks(two_branches(12, small), small, -1) == 0);
  // Each step fills the device.
  CHECK(forks(two_branches(12, large), large, 20000) == 0);
}

TEST_CASE("lanes: a run without a recording is one line") {
  auto plan = std::make_shared<Plan>();
  plan->graph = two_branches(12, {4});
  plan->target = device::cuda_target(90);
  ExecutableOptions options;
  options.max_graphs = 0;
  const auto e = Executable::create(plan, fake_registry(), plan->target, options);
  const int before = fake().forks;
  Tensor x = Tensor::zeros(DType::f32, {4});
  for (int round = 0; round < 3; ++round) (void)e->context().run({x});
  CHECK(fake().forks == before);
}

TEST_CASE("lanes: drawn graphs compute what the interpreter computes, in any order of their lanes") {
  int lanes = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const auto e = load(drawn(seed, 30), 0);
    Context c = e->context();
    const int before = fake().forks;
    for (int round = 0; round < 3; ++round) {
      std::vector<HostValue> in;
      for (int k = 0; k < 2; ++k) {
        Tensor t(DType::f32, {4, 8});
        for (int64_t i = 0; i < t.count(); ++i)
          t.set_double(i, static_cast<double>((i * 7 + k * 3 + round) % 11) / 8 - 0.5);
        in.emplace_back(std::move(t));
      }
      const auto got = c.run(in), expected = interp::run(e->graph(), in).outputs;
      for (size_t i = 0; i < got.size(); ++i) CHECK(got[i].tensor.same_bytes(expected[i].tensor));
    }
    lanes += fake().forks - before;
  }
  CHECK(lanes > 60);
}

namespace {

// As drawn(), and some of its values are the next ones of slots, which others read before and behind.
Graph drawn_with_state(uint64_t seed, int steps) {
  constexpr int kSlots = 4;
  Graph g("state");
  Builder b(g);
  const Type type = Type::tensor(DType::f32, {Dim(4), Dim(8)});
  std::vector<ValueId> old, values{g.add_input(type)};
  for (int i = 0; i < kSlots; ++i) {
    Slot s;
    s.name = cat("s", i);
    s.kind = SlotKind::statistic;
    s.type = type;
    s.initial = Tensor::full(DType::f32, {4, 8}, 0.25 * (i + 1));
    old.push_back(g.add_slot(std::move(s)));
  }
  const RandomStream random{seed};
  uint64_t drawn_so_far = 0;
  auto next = [&] { return random.bits(drawn_so_far++); };
  auto pick = [&] {
    if (next() % 3 == 0) return old[next() % kSlots];
    const size_t most = std::min<size_t>(values.size(), 6);
    return values[values.size() - 1 - next() % most];
  };
  for (int i = 0; i < steps; ++i) {
    const ValueId left = pick(), right = pick();
    values.push_back(next() % 2 ? b.add(left, b.op("neg", {right})) : b.mul(left, right));
  }
  for (size_t i = 0; i < kSlots; ++i) g.slots[i].next = values[values.size() - 1 - i * 3];
  g.add_output(values.back());
  g.add_output(b.add(old[0], values[1]));
  return g;
}

// Three rounds on the device and in the interpreter; how often streams joined.
int follow_state(Graph graph) {
  const auto e = load(std::move(graph), 0);
  Context c = e->context();
  const int before = fake().forks;
  std::vector<HostValue> state;
  for (const Slot& s : e->graph().slots) state.emplace_back(s.initial);
  for (int round = 0; round < 4; ++round) {
    CAPTURE(round);
    Tensor x(DType::f32, {4, 8});
    for (int64_t i = 0; i < x.count(); ++i)
      x.set_double(i, static_cast<double>((i * 5 + round) % 7) / 8 - 0.25);
    const auto expected = interp::run(e->graph(), {x}, state);
    const auto got = c.run({x});
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i].tensor.same_bytes(expected.outputs[i].tensor));
    for (size_t i = 0; i < state.size(); ++i) {
      state[i] = expected.next_state[i];
      CHECK(c.state(i).same_bytes(state[i].tensor));
    }
  }
  return fake().forks - before;
}

}  // namespace

TEST_CASE("lanes: branches write over state that others read before, in any order of their lanes") {
  int lanes = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    lanes += follow_state(drawn_with_state(seed, 24));
  }
  CHECK(lanes > 30);
}

TEST_CASE("lanes: a step that writes over its state stays in one line where one of its kernels is long") {
  for (const bool state : {false, true})
    for (const bool long_step : {false, true}) {
      CAPTURE(state);
      CAPTURE(long_step);
      Graph g = two_branches(12, {4});
      Builder b(g);
      const Type type = Type::tensor(DType::f32, {Dim(long_step ? 1 << 21 : 8)});
      const ValueId other = g.add_input(type);
      if (state) {
        Slot s;
        s.name = "s";
        s.kind = SlotKind::statistic;
        s.type = type;
        s.initial = Tensor::zeros(DType::f32, {long_step ? 1 << 21 : 8});
        const ValueId old = g.add_slot(std::move(s));
        g.slots[0].next = b.add(old, other);
      } else {
        g.add_output(b.add(other, other));
      }
      const auto e = load(std::move(g), 0);
      Context c = e->context();
      const int before = fake().forks;
      for (int round = 0; round < 3; ++round)
        (void)c.run({Tensor::zeros(DType::f32, {4}), Tensor::zeros(DType::f32, {long_step ? 1 << 21 : 8})});
      CHECK((fake().forks > before) == !(state && long_step));
    }
}
