// SPDX-License-Identifier: Apache-2.0
// Plans of another machine: what they run on before, while and after their nodes are timed here.
#include "compiler/retune.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "compiler/compile.h"
#include "ir/text.h"
#include "runtime/executable.h"

using namespace pelton;
using namespace pelton::compiler;

namespace {

// relu in four ways: slowly, failing, fast, and one that is never timed.
class Relu final : public backend::Kernel {
 public:
  Relu(int64_t count, int milliseconds) : count_(count), milliseconds_(milliseconds) {}
  void run(const backend::RunArgs& args) const override {
    if (milliseconds_ < 0) fail(ErrorCode::internal, "does not run");
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds_));
    for (int64_t i = 0; i < count_; ++i) {
      const float x = static_cast<const float*>(args.in[0])[i];
      static_cast<float*>(args.out[0])[i] = x > 0 ? x : 0;
    }
  }

 private:
  int64_t count_;
  int milliseconds_;
};
template <int kMilliseconds>
backend::Implementation relu(const char* name, bool timed) {
  return {name,
          {"relu"},
          [](const ir::Graph&, ir::NodeId, const device::Target&) { return std::string(); },
          [](const backend::Instance& i, const device::Target&) -> std::unique_ptr<backend::Kernel> {
            return std::make_unique<Relu>(i.outputs[0].count(), kMilliseconds);
          },
          timed};
}
backend::Registry ways() {
  backend::Registry r;
  r.add(relu<3>("test.slow", true));
  r.add(relu<-1>("test.fails", true));
  r.add(relu<0>("test.fast", false));
  r.add(relu<0>("test.untimed", false));
  return r;
}

device::Target machine(device::CpuIsa isa, const char* product) {
  device::Target t;
  t.isa = isa;
  t.name = cat("cpu-", device::to_string(isa));
  t.product = product;
  return t;
}
const device::Target kThere = machine(device::CpuIsa::scalar, "Old CPU");
const device::Target kHere = machine(device::CpuIsa::avx2, "New CPU");

std::shared_ptr<runtime::Plan> plan_from(const device::Target& target, const backend::Registry& registry) {
  return std::make_shared<runtime::Plan>(compile(
      ir::parse_graph("graph \"g\"(%x: f32[4]) { %y = relu(%x) : f32[4] return %y }"), target, {}, registry));
}

// Timings of a machine, in memory.
struct Timings {
  Tactics known;
  int kept = 0;
  PlanRetuner retuner(const backend::Registry& registry) {
    return {registry, 20, [this] { return known; },
            [this](const Tactics& more) {
              known.merge(more);
              ++kept;
            }};
  }
};
float first_result(runtime::Context& context) {
  return context.run_tensors({Tensor::from<float>({4}, {2, -1, 0, 1})})[0].as<float>()[0];
}

}  // namespace

TEST_CASE("a plan is foreign by instruction set, kind, or where it was timed") {
  const backend::Registry registry = ways();
  auto plan = plan_from(kThere, registry);
  CHECK(runtime::foreign(*plan, kThere).empty());
  CHECK(runtime::foreign(*plan, kHere) == "the plan was compiled for cpu-scalar and runs on cpu-avx2");
  const device::Target other = machine(device::CpuIsa::scalar, "Other CPU");
  CHECK(runtime::foreign(*plan, other).empty());  // nothing in it depends on the processor
  plan->choices.back().seconds = 1e-3;
  CHECK(runtime::foreign(*plan, other) == "the plan was compiled for Old CPU and runs on Other CPU");
  CHECK(runtime::foreign(*plan, machine(device::CpuIsa::scalar, "")).empty());
}

TEST_CASE("without a retuner a foreign plan runs on the first implementations, and says so") {
  const backend::Registry registry = ways();
  auto plan = plan_from(kThere, registry);
  plan->choices.back().implementation = "test.untimed";
  CHECK(runtime::Executable::create(plan, registry, kThere)->choices().back().implementation ==
        "test.untimed");
  const auto e = runtime::Executable::create(plan, registry, kHere);
  CHECK(e->choices().back().implementation == "test.slow");
  CHECK_FALSE(e->retuning());
  REQUIRE(e->notes().size() == 1);
  CHECK(e->notes()[0].find("the first that take each node") != std::string::npos);
}

TEST_CASE("a foreign plan runs at once and goes over to what is fastest here") {
  const backend::Registry registry = ways();
  Timings timings;
  const PlanRetuner retuner = timings.retuner(registry);
  const auto plan = plan_from(kThere, registry);
  const auto e = runtime::Executable::create(plan, registry, kHere, {.retuner = &retuner});
  runtime::Context context = e->context();
  CHECK(first_result(context) == 2);
  float bound = 0;
  const float x[4] = {3, 0, 0, 0};
  float y[4] = {};
  runtime::Context with_buffers = e->context();
  with_buffers.bind_input(0, {4}, x);
  with_buffers.bind_output(0, y, sizeof y);
  e->wait_until_tuned();
  CHECK(e->choices().back().implementation == "test.fast");
  CHECK(e->notes().back().find("1 nodes timed, 1 run on another implementation") != std::string::npos);
  CHECK(e->notes().back().find("test.fails is left out: does not run") != std::string::npos);
  // Both contexts follow, the second with its buffers.
  std::string ran;
  runtime::RunOptions options;
  options.observe = [&](const runtime::StepEvent& event) { ran = event.implementation; };
  CHECK(context.run({Tensor::from<float>({4}, {5, 0, 0, 0})}, options)[0].tensor.as<float>()[0] == 5);
  CHECK(ran == "test.fast");
  ran.clear();
  with_buffers.run_bound(options);
  bound = y[0];
  CHECK(bound == 3);
  CHECK(ran == "test.fast");
  CHECK(e->memory().contexts == 2);
  // Another process of this machine need not time anything.
  CHECK(timings.kept == 1);
  const auto again = runtime::Executable::create(plan, registry, kHere, {.retuner = &retuner});
  CHECK_FALSE(again->retuning());
  CHECK(again->choices().back().implementation == "test.fast");
  CHECK(again->notes()[0].find("as timed on this machine before") != std::string::npos);
}

TEST_CASE("nothing is timed for plans whose choices are not to depend on it, or that only run once") {
  const backend::Registry registry = ways();
  Timings timings;
  const PlanRetuner retuner = timings.retuner(registry);
  const auto plan = plan_from(kThere, registry);
  CHECK_FALSE(
      runtime::Executable::create(plan, registry, kHere, {.retuner = &retuner, .retune = false})->retuning());
  plan->options[std::string(runtime::kDeterministic)] = "true";
  const auto e = runtime::Executable::create(plan, registry, kHere, {.retuner = &retuner});
  CHECK_FALSE(e->retuning());
  CHECK(e->choices().back().implementation == "test.slow");
  CHECK(timings.kept == 0);
}

TEST_CASE("an executable that goes while it is being timed waits for one kernel, not for all") {
  backend::Registry registry;
  registry.add(relu<20>("test.slow", true));
  registry.add(relu<20>("test.slower", false));
  Timings timings;
  const PlanRetuner retuner = timings.retuner(registry);
  const auto plan = plan_from(kThere, registry);
  const auto start = std::chrono::steady_clock::now();
  runtime::Executable::create(plan, registry, kHere, {.retuner = &retuner}).reset();
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
}

TEST_CASE("timings that cannot be read or kept cost nothing but themselves") {
  const backend::Registry registry = ways();
  const PlanRetuner retuner(
      registry, 20, []() -> Tactics { fail(ErrorCode::bad_format, "damaged"); },
      [](const Tactics&) { fail(ErrorCode::disk_full, "no room"); });
  const auto e =
      runtime::Executable::create(plan_from(kThere, registry), registry, kHere, {.retuner = &retuner});
  e->wait_until_tuned();
  CHECK(e->choices().back().implementation == "test.fast");
}

namespace {

// Times when it is told to.
class Gated final : public runtime::Retuner {
 public:
  explicit Gated(const runtime::Retuner& inner) : inner_(inner) {}
  runtime::Retuned known(const runtime::Plan& plan, const device::Target& target) const override {
    return inner_.known(plan, target);
  }
  runtime::Retuned time(const runtime::Plan& plan, const device::Target& target,
                        const std::atomic<bool>& stop) const override {
    while (!open && !stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return inner_.time(plan, target, stop);
  }
  std::atomic<bool> open{false};

 private:
  const runtime::Retuner& inner_;
};

}  // namespace

TEST_CASE("who waits for a context when the timing ends gets one of what follows") {
  const backend::Registry registry = ways();
  Timings timings;
  const PlanRetuner retuner = timings.retuner(registry);
  Gated gated(retuner);
  const auto e = runtime::Executable::create(
      plan_from(kThere, registry), registry, kHere,
      {.max_contexts = 1, .wait_ns = int64_t{40} * 1'000'000'000, .retuner = &gated});
  const runtime::Context held = e->context();
  std::atomic<bool> got{false};
  std::thread waiter([&] {
    try {
      runtime::Context context = e->context();
      got = first_result(context) == 2;
    } catch (const Error&) {  // busy: nobody woke it
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it waits by now
  CHECK_FALSE(got);
  const auto start = std::chrono::steady_clock::now();
  gated.open = true;
  waiter.join();
  CHECK(got);
  // Woken, not at the end of its patience.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}
