// SPDX-License-Identifier: Apache-2.0
// Runs on a device that fail: what is said, and that the next run is whole.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "device/fault.h"
#include "runtime/device_plans.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::runtime;
using namespace pelton::test;

TEST_CASE("device: too little memory is an error that leaves the process and other plans whole") {
  auto e = load(kPure);
  Context c = e->context();
  std::vector<HostValue> small = {ramp({8, 4}), ramp({4})};
  auto expected = interp::run(e->graph(), small).outputs;
  for (int i = 0; i < 3; ++i) same(c.run(small), expected);
  fake().limit_bytes = test::fake_memory().used() + 4096;
  for (int i = 0; i < 2; ++i)
    expect_error(ErrorCode::out_of_memory, {"no ", "bytes of device memory", "are free"}, [&] {
      c.run({ramp({10000, 4}), ramp({4})});
    });
  for (int i = 0; i < 3; ++i) same(c.run(small), expected);
  fake().limit_bytes = int64_t{1} << 40;
  same(c.run({ramp({10000, 4}), ramp({4})}), interp::run(e->graph(), {ramp({10000, 4}), ramp({4})}).outputs);
  ExecutableOptions options;
  options.memory_budget_bytes = 1000;
  auto bounded = load(kPure, options);
  expect_error(ErrorCode::limit, {"arena of graph 'pure'", "memory budget is 1000"}, [&] {
    bounded->run({ramp({1000, 4}), ramp({4})});
  });
}

TEST_CASE("device: a lost device is an error of every run, and nothing hangs") {
  auto e = load(kPure);
  Context c = e->context();
  c.run({ramp({8, 4}), ramp({4})});
  fake().lost = true;
  for (int i = 0; i < 3; ++i)
    expect_error(ErrorCode::device_lost, {"device is gone"}, [&] { c.run({ramp({8, 4}), ramp({4})}); });
  { Context other = e->context(); }  // its destructor does not throw
  fake().lost = false;
  std::vector<HostValue> in = {ramp({8, 4}), ramp({4})};
  same(c.run(in), interp::run(e->graph(), in).outputs);
}

TEST_CASE("device: a slice that leaves its operand at the sizes of a run is refused before a kernel runs") {
  auto e = load(R"(graph "g"(%x: f32[N]) {
    symbol N in [1, 9]
    %0 = slice(%x) {axes = [0], starts = dims[0], sizes = dims[4], steps = [1]} : f32[4]
    return %0
  })");
  same(e->run({ramp({5})}), {ramp({4})});
  const int before = fake().kernels;
  expect_error(ErrorCode::bad_shape, {"leaves axis 0 of shape [3]", "slice"}, [&] { e->run({ramp({3})}); });
  CHECK(fake().kernels == before);
}

TEST_CASE("device: a build without one says so") {
  backend::Registry none;
  auto plan = std::make_shared<Plan>();
  plan->graph = parse_graph(kPure);
  expect_error(ErrorCode::no_device, {"nothing on a device of kind cuda", "sm_90", "--device cpu"},
               [&] { Executable::create(plan, none, device::cuda_target(90)); });
}

TEST_CASE("device: cancelling acts between parts, and threads share a plan") {
  auto e = load(kMixed);
  std::atomic<bool> cancel{true};
  RunOptions options;
  options.cancel = &cancel;
  expect_error(ErrorCode::cancelled, {"cancelled", "before add"}, [&] {
    e->run({ramp({2, 4}), ramp({4})}, options);
  });

  std::vector<HostValue> in = {ramp({5, 4}), ramp({4}, 3)};
  auto expected = interp::run(e->graph(), in).outputs;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 30; ++i)
        if (!e->run(in)[0].tensor.same_bytes(expected[0].tensor)) ++wrong;
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
}

namespace {

// Reports a fault when its first element is negative.
class FaultyKernel : public backend::Kernel {
 public:
  void run(const backend::RunArgs& args) const override {
    auto x = static_cast<const float*>(args.in[0]);
    auto y = static_cast<float*>(args.out[0]);
    uint32_t* fault = device::fault_word();
    static_cast<test::FakeStream*>(args.stream)->push([=] {
      if (x[0] < 0) *fault = 1;
      y[0] = x[0];
    });
  }
};

}  // namespace

TEST_CASE("device: what a kernel finds wrong with values fails the run by the node's name, once") {
  static backend::Registry* r = [] {
    auto* made = new backend::Registry;
    made->add_device(device::Kind::cuda, test::open_fake);
    backend::Implementation faulty;
    faulty.name = "fake.faulty";
    faulty.ops = {"abs"};
    faulty.refuse = [](const Graph&, NodeId, const device::Target&) { return std::string(); };
    faulty.prepare = [](const backend::Instance&, const device::Target&) -> std::unique_ptr<backend::Kernel> {
      return std::make_unique<FaultyKernel>();
    };
    faulty.device = device::Kind::cuda;
    made->add(std::move(faulty));
    return made;
  }();
  auto plan = std::make_shared<Plan>();
  plan->graph =
      parse_graph("graph \"g\"(%x: f32[1]) {\n  %0 = abs(%x) : f32[1] @\"look/up\"\n  return %0\n}");
  plan->target = device::cuda_target(90);
  auto e = Executable::create(plan, *r, plan->target);
  Context c = e->context();
  for (int round = 0; round < 3; ++round) {
    CHECK(c.run({Tensor::from<float>({1}, {4})})[0].tensor.get_double(0) == 4);
    expect_error(ErrorCode::bad_shape, {"an index or a length lies outside", "look/up"},
                 [&] { c.run({Tensor::from<float>({1}, {-4})}); });
  }
  // A run that fails for another reason takes the report with it.
  float y[2];
  c.bind_output(0, y, sizeof y);
  expect_error(ErrorCode::bad_shape, {"has 8 bytes", "f32[1] needs 4", "output"},
               [&] { c.run({Tensor::from<float>({1}, {-4})}); });
  c.bind_output(0, nullptr, 0);
  CHECK(c.run({Tensor::from<float>({1}, {4})})[0].tensor.get_double(0) == 4);
}
