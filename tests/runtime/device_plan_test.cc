// SPDX-License-Identifier: Apache-2.0
// What a plan brings to a device: weights, the target it was made for, what kernels made.
#include <doctest/doctest.h>

#include <atomic>

#include "device/artifacts.h"
#include "runtime/device_plans.h"
#include "runtime/plan_file.h"
#include "support/temp_dir.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::runtime;
using namespace pelton::test;

TEST_CASE("device: weights are there once for all plans that share them") {
  int64_t before = test::fake_memory().used();
  auto plan = std::make_shared<Plan>();
  std::string values;
  for (int i = 0; i < 4096; ++i) append(values, cat(i ? "," : "", i));
  plan->graph = parse_graph(cat("graph \"w\"(%x: f32[4096]) {\n  %w = constant() {value = tensor<f32[4096]>{",
                                values, "}} : f32[4096]\n  %0 = mul(%x, %w) : f32[4096]\n  return %0\n}"));
  plan->target = device::cuda_target(90);
  auto a = Executable::create(plan, fake_registry(), plan->target);
  auto b = Executable::create(plan, fake_registry(), plan->target);
  CHECK(a->memory().device_weights == 0);  // copied when they are used
  a->run({ramp({4096})});
  int64_t first = test::fake_memory().used() - before;
  b->run({ramp({4096})});
  int64_t second = test::fake_memory().used() - before - first;
  CHECK(a->memory().device_weights == 4096 * 4);
  CHECK(first - second == 4096 * 4);
}

TEST_CASE("device: a plan of another kind of device runs, and says that it was not made for it") {
  auto plan = std::make_shared<Plan>();
  plan->graph = parse_graph(kPure);
  plan->target = device::detect_cpu(1);
  plan->choices = choose_all(plan->graph, fake_registry(), plan->target);
  auto e = Executable::create(plan, fake_registry(), device::cuda_target(90));
  REQUIRE(e->notes().size() == 1);
  CHECK(e->notes()[0].find("runs on sm_90") != std::string::npos);
  CHECK(e->choices()[1].implementation == "fake.any");
  same_as_interpreter(*e, {ramp({3, 4}), ramp({4}, 1)});
}

TEST_CASE("device: a plan of another architecture or GPU model runs, and says which it was made for") {
  auto plan = std::make_shared<Plan>();
  plan->graph = parse_graph(kPure);
  plan->target = device::cuda_target(100);
  plan->choices = choose_all(plan->graph, fake_registry(), plan->target);
  device::Target here = device::cuda_target(90);
  here.product = "NVIDIA H200";
  auto notes = [&] {
    auto e = Executable::create(plan, fake_registry(), here);
    same_as_interpreter(*e, {ramp({3, 4}), ramp({4}, 1)});
    return e->notes();
  };
  REQUIRE(notes().size() == 1);
  CHECK(notes()[0].find("the plan was compiled for sm_100 and runs on sm_90") != std::string::npos);
  plan->target = here;
  CHECK(notes().empty());
  plan->target.product = "NVIDIA H100";
  REQUIRE(notes().size() == 1);
  CHECK(notes()[0].find("the plan was compiled for NVIDIA H100 and runs on NVIDIA H200") !=
        std::string::npos);
}

namespace {

std::atomic<int> compiled{0};

// "Compiles" its text unless the plan has it.
std::unique_ptr<backend::Kernel> prepare_kept(const backend::Instance& instance, const device::Target&) {
  device::Artifacts* artifacts = device::current_artifacts();
  if (!artifacts || artifacts->find("kernels", "text of neg") != "binary") {
    ++compiled;
    if (artifacts) artifacts->add("kernels", "text of neg", "binary");
  }
  return std::make_unique<test::FakeKernel>(instance);
}

const backend::Registry& keeping_registry() {
  static backend::Registry* r = [] {
    auto* made = new backend::Registry;
    backend::Implementation keeps;
    keeps.name = "fake.keeps";
    keeps.ops = {"neg"};
    keeps.refuse = [](const Graph&, NodeId, const device::Target&) { return std::string(); };
    keeps.prepare = prepare_kept;
    keeps.device = device::Kind::cuda;
    made->add(std::move(keeps));
    test::add_fake_kernels(*made);
    return made;
  }();
  return *r;
}

}  // namespace

TEST_CASE("device: what kernels made is found where the plan carries it") {
  auto plan = std::make_shared<Plan>();
  plan->graph = parse_graph("graph \"g\"(%x: f32[4]) { %0 = neg(%x) : f32[4] return %0 }");
  plan->target = device::cuda_target(90);
  plan->choices = choose_all(plan->graph, keeping_registry(), plan->target);
  auto run = [](std::shared_ptr<const Plan> p) {
    const int before = compiled;
    auto e = Executable::create(p, keeping_registry(), p->target);
    same(e->run({ramp({4})}), interp::run(p->graph, {ramp({4})}).outputs);
    return compiled - before;
  };
  CHECK(run(plan) == 1);
  CHECK(run(plan) == 1);  // nobody keeps it
  plan->artifacts = std::make_shared<device::Artifacts>();
  CHECK(run(plan) == 1);
  CHECK(run(plan) == 0);
  test::TempDir dir;
  save_plan(*plan, dir / "a.pelton");
  CHECK(run(load_plan(dir / "a.pelton")) == 0);
  CHECK(device::current_artifacts() == nullptr);
}
