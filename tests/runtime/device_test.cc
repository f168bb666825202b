// SPDX-License-Identifier: Apache-2.0
// Plans on a device with memory of its own, by a device that is one only in its rules (fake_device.h).
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "device/artifacts.h"
#include "device/fault.h"
#include "interp/interpreter.h"
#include "ir/text.h"
#include "runtime/executable.h"
#include "runtime/fake_registry.h"
#include "runtime/plan_file.h"
#include "support/expect_error.h"
#include "support/op_cases.h"
#include "support/temp_dir.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::runtime;
using pelton::test::expect_error;
using pelton::test::fake;
using pelton::test::fake_registry;

namespace {

std::shared_ptr<const Executable> load(const std::string& text, ExecutableOptions options = {}) {
  auto plan = std::make_shared<Plan>();
  plan->graph = parse_graph(text);
  plan->target = device::cuda_target(90);
  options.check_memory = true;
  return Executable::create(plan, fake_registry(), plan->target, options);
}

Tensor ramp(Dims dims, float start = 0) {
  Tensor t(DType::f32, dims);
  for (int64_t i = 0; i < t.count(); ++i) t.set_double(i, start + static_cast<double>(i) * 0.25);
  return t;
}

void same(const std::vector<HostValue>& got, const std::vector<HostValue>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].tensor.str() == expected[i].tensor.str());
    CHECK(got[i].tensor.same_bytes(expected[i].tensor));
  }
}

// Several runs on one context: step by step, recorded, played, each on other values.
void same_as_interpreter(const Executable& e, const std::vector<Tensor>& inputs) {
  Context c = e.context();
  for (int round = 0; round < 4; ++round) {
    CAPTURE(round);
    std::vector<HostValue> values;
    for (const Tensor& t : inputs) {
      values.emplace_back(t.clone());
      if (t.count() && t.dtype() == DType::f32) values.back().tensor.set_double(0, round * 3.5 + 1);
    }
    same(c.run(values), interp::run(e.graph(), values).outputs);
  }
}

// neg of f32 has a CPU kernel too; exp runs on neither and takes the reference function.
const char* kMixed = R"(graph "mixed"(%x: f32[N,4], %b: f32[4]) {
  symbol N in [0, 1000]
  %0 = add(%x, %b) : f32[N,4]
  %1 = neg(%0) : f32[N,4]
  %2 = exp(%1) : f32[N,4]
  %3 = reshape(%2) {dims = dims[4*N]} : f32[4*N]
  %4 = neg(%3) : f32[4*N]
  %5 = add(%4, %3) : f32[4*N]
  %6 = mul(%5, %3) : f32[4*N]
  return %6 @"y", %1 @"z", %2 @"e"
})";

const char* kPure = R"(graph "pure"(%x: f32[N,4], %b: f32[4]) {
  symbol N in [0, 1000000000]
  %w = constant() {value = tensor<f32[4]>{1, 2, 3, 4}} : f32[4]
  %0 = add(%x, %b) : f32[N,4]
  %1 = mul(%0, %w) : f32[N,4]
  %2 = neg(%1) : f32[N,4]
  return %2 @"y", %0 @"s"
})";

}  // namespace

TEST_CASE("device: each node runs on the device if it takes it, else on the host, and says so") {
  auto e = load(kMixed);
  CHECK(e->choices()[0].implementation == "fake.any");
  CHECK(e->choices()[2].implementation == kReference);
  std::vector<std::string> ran;
  RunOptions options;
  options.plain_values = true;
  options.observe = [&](const StepEvent& event) {
    ran.push_back(cat(event.graph.op(event.node).name, ":", std::string(event.implementation)));
    CHECK(event.end_ns >= event.start_ns);
    std::vector<HostValue> in(event.inputs.begin(), event.inputs.end());
    CHECK(event.outputs[0].tensor.data() != nullptr);
  };
  std::vector<HostValue> in = {ramp({2, 4}), ramp({4})};
  same(e->run(in, options), interp::run(e->graph(), in).outputs);
  CHECK(ran == std::vector<std::string>{"add:fake.any", "neg:fake.any", "exp:reference", "neg:fake.any",
                                        "add:fake.any", "mul:fake.any"});
}

TEST_CASE("device: observers that want no values cost no copies and get sizes") {
  auto e = load(kPure);
  RunOptions options;
  int events = 0;
  options.observe = [&](const StepEvent& event) {
    ++events;
    CHECK(event.outputs[0].tensor.dims() == Dims{2, 4});
    CHECK(event.outputs[0].tensor.data() == nullptr);
    CHECK(event.bytes() > 0);
  };
  std::vector<HostValue> in = {ramp({2, 4}), ramp({4})};
  int downloads = fake().downloads;
  same(e->run(in, options), interp::run(e->graph(), in).outputs);
  CHECK(events == 3);
  CHECK(fake().downloads - downloads == 2);  // the results
}

TEST_CASE("device: runs give what the interpreter gives, mixed with steps on the host") {
  auto mixed = load(kMixed);
  for (int64_t n : {3, 1, 0, 17, 3}) same_as_interpreter(*mixed, {ramp({n, 4}), ramp({4}, 1)});
  auto pure = load(kPure);
  for (int64_t n : {3, 1, 0, 17, 3}) same_as_interpreter(*pure, {ramp({n, 4}), ramp({4}, 1)});
}

TEST_CASE("device: the second run of the same sizes is recorded, later ones are played") {
  auto e = load(kPure);
  Context c = e->context();
  int kernels = fake().kernels, plays = fake().plays;
  auto counts = [&] {
    std::pair<int, int> now{fake().kernels - kernels, fake().plays - plays};
    kernels = fake().kernels;
    plays = fake().plays;
    return now;
  };
  auto run = [&](int64_t n) {
    std::vector<HostValue> in = {ramp({n, 4}), ramp({4})};
    same(c.run(in), interp::run(e->graph(), in).outputs);
  };
  run(8);
  CHECK(counts() == std::pair(3, 0));
  run(8);
  CHECK(counts() == std::pair(3, 1));
  run(8);
  CHECK(counts() == std::pair(0, 1));
  run(2);  // other sizes
  CHECK(counts() == std::pair(3, 0));
  run(8);  // known again
  CHECK(counts() == std::pair(0, 1));
  run(100);  // the arena and the buffers grow, so the addresses change
  CHECK(counts() == std::pair(3, 0));
  run(8);
  CHECK(counts() == std::pair(3, 0));
}

TEST_CASE("device: recordings are limited") {
  ExecutableOptions options;
  options.max_graphs = 1;
  auto e = load(kPure, options);
  Context c = e->context();
  auto run = [&](int64_t n) { c.run({ramp({n, 4}), ramp({4})}); };
  run(8);
  run(8);
  run(4);
  int kernels = fake().kernels;
  run(8);
  CHECK(fake().kernels - kernels == 3);
  options.max_graphs = 0;
  auto never = load(kPure, options);
  Context d = never->context();
  int plays = fake().plays;
  for (int i = 0; i < 4; ++i) d.run({ramp({8, 4}), ramp({4})});
  CHECK(fake().plays == plays);
}

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

TEST_CASE("device: buffers of the caller, on the host and on the device") {
  auto e = load(kMixed);
  Context c = e->context();
  Tensor x = ramp({2, 4}), b = ramp({4}, 5);
  device::Memory dx(test::open_fake({}), 32, "x"), dz(test::open_fake({}), 32, "z"),
      dy(test::open_fake({}), 32, "y");
  std::memcpy(dx.get(), x.data(), 32);
  std::vector<float> y(8, 0);
  c.bind_device_input(0, {2, 4}, dx.get());
  c.bind_input(1, {4}, b.data());
  c.bind_output(0, y.data(), 32);
  c.bind_device_output(1, dz.get(), 32);
  c.bind_device_output(2, dy.get(), 32);
  for (int round = 0; round < 3; ++round) {
    CAPTURE(round);
    x.set_double(1, round);
    std::memcpy(dx.get(), x.data(), 32);
    c.run_bound();
    auto expected = interp::run(e->graph(), {x, b}).outputs;
    CHECK(std::memcmp(y.data(), expected[0].tensor.data(), 32) == 0);
    CHECK(std::memcmp(dz.get(), expected[1].tensor.data(), 32) == 0);
    CHECK(std::memcmp(dy.get(), expected[2].tensor.data(), 32) == 0);
  }
  expect_error(ErrorCode::usage, {"no multiple of 16", "input 'x'"}, [&] {
    c.bind_device_input(0, {2, 4}, dx.bytes_at(4));
  });
  expect_error(ErrorCode::usage, {"no multiple of 16", "output 'e'"},
               [&] { c.bind_device_output(2, dy.bytes_at(8), 24); });
  c.bind_device_output(1, dz.get(), 28);
  expect_error(ErrorCode::bad_shape, {"has 28 bytes", "needs", "output 'z'"}, [&] { c.run_bound(); });

  auto host = Executable::create(std::make_shared<Plan>(e->plan()), fake_registry(), device::detect_cpu(1));
  Context on_host = host->context();
  expect_error(ErrorCode::usage, {"runs on the CPU", "input 'x'"}, [&] {
    on_host.bind_device_input(0, {2, 4}, dx.get());
  });
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

TEST_CASE("device: state stays on the device between runs and can be read and set") {
  auto e = load(R"(graph "count"(%x: f32[2]) {
  slot %sum counter "sum" : f32[2] = tensor<f32[2]>{1, 2}
  slot %last cache "last" : f32[2] = tensor<f32[2]>{0, 0}
  %next = add(%sum, %x) : f32[2]
  next %sum = %next
  next %last = %sum
  return %sum @"old", %next @"new", %last @"before"
})");
  Context c = e->context();
  Tensor x = Tensor::from<float>({2}, {10, 20});
  float expected[2] = {1, 2};
  for (int i = 0; i < 4; ++i) {
    auto out = c.run_tensors({x});
    for (int64_t k = 0; k < 2; ++k) {
      CHECK(out[0].get_double(k) == expected[k]);
      CHECK(out[2].get_double(k) == (i == 0 ? 0 : expected[k] - x.get_double(k)));
      expected[k] += static_cast<float>(x.get_double(k));
      CHECK(out[1].get_double(k) == expected[k]);
    }
  }
  CHECK(c.state(0).same_bytes(Tensor::from<float>({2}, {41, 82})));
  CHECK(c.state(1).same_bytes(Tensor::from<float>({2}, {31, 62})));
  c.set_state(0, Tensor::from<float>({2}, {0, 0}));
  CHECK(c.run_tensors({x})[1].same_bytes(x));
  c.reset_state();
  CHECK(c.run_tensors({x})[0].same_bytes(Tensor::from<float>({2}, {1, 2})));
}

TEST_CASE("device: a result whose size depends on data cuts the plan, what follows runs on the device") {
  auto e = load(R"(graph "cut"(%x: f32[6]) {
  symbol K in [0, 6]
  %0 = neg(%x) : f32[6]
  %1 = non_zero(%0) : i64[1,K]
  %2 = add(%1, %1) : i64[1,K]
  %3 = neg(%0) : f32[6]
  return %2 @"twice", %3 @"x"
})");
  for (std::vector<float> v :
       {std::vector<float>{0, 1, 0, 2, 3, 0}, {1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0}}) {
    std::vector<HostValue> in = {Tensor::from<float>({6}, v)};
    auto expected = interp::run(e->graph(), in).outputs;
    Context c = e->context();
    for (int round = 0; round < 3; ++round) same(c.run(in), expected);
  }
}

TEST_CASE("device: results that are inputs, constants, views or the same value twice") {
  auto e = load(R"(graph "edges"(%x: f32[2,3]) {
  %c = constant() {value = tensor<f32[2]>{5, 6}} : f32[2]
  %v = reshape(%x) {dims = dims[6]} : f32[6]
  %n = neg(%x) : f32[2,3]
  %r = reshape(%n) {dims = dims[3,2]} : f32[3,2]
  return %x, %c, %v, %n, %r, %n
})");
  same_as_interpreter(*e, {ramp({2, 3})});
}

TEST_CASE("device: control flow runs on the host inside a plan of the device") {
  auto e = load(R"(graph "branch"(%c: bool[], %x: f32[3]) {
  %0 = neg(%x) : f32[3]
  %1 = if(%c, %0) {
    else = graph "e"(%a: f32[3]) {
      %s = neg(%a) : f32[3]
      return %s
    },
    then = graph "t"(%a: f32[3]) {
      %s = add(%a, %a) : f32[3]
      return %s
    }
  } : f32[3]
  %2 = neg(%1) : f32[3]
  return %2
})");
  for (bool b : {true, false}) same_as_interpreter(*e, {Tensor::scalar<bool>(b), ramp({3}, 1)});
}

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

TEST_CASE("device: the phases of a run are told apart") {
  auto e = load(kPure);
  PhaseTimes phases{-1, -1, -1};
  RunOptions options;
  options.phases = &phases;
  e->run({ramp({1000, 4}), ramp({4})}, options);
  CHECK(phases.upload >= 0);
  CHECK(phases.compute > 0);
  CHECK(phases.download >= 0);
}

TEST_CASE("device: the stored cases of the ops, on the device or on the host as they come") {
  // Every second kind of op runs on the device, so that values cross over in both directions.
  static backend::Registry* r = [] {
    auto* made = new backend::Registry;
    made->add_device(device::Kind::cuda, test::open_fake);
    backend::Implementation any;
    any.name = "fake.most";
    size_t i = 0;
    for (const OpDef* op : all_ops())
      if (op->eval && op->family != Family::control && op->effects == Effects::pure && i++ % 2 == 0)
        any.ops.push_back(op->name);
    any.refuse = [](const Graph& g, NodeId id, const device::Target&) {
      for (const auto* side : {&g[id].inputs, &g[id].outputs})
        for (ValueId v : *side)
          if (v && (!g.type(v).is_tensor() || g.type(v).dtype == DType::string))
            return std::string("no plain tensor");
      return std::string();
    };
    any.prepare = [](const backend::Instance& i, const device::Target&) -> std::unique_ptr<backend::Kernel> {
      return std::make_unique<test::FakeKernel>(i);
    };
    any.device = device::Kind::cuda;
    made->add(std::move(any));
    return made;
  }();
  int cases = 0;
  for (const std::string& file : test::case_files())
    for (const test::Case& c : test::read_cases(file)) {
      if (!c.code.empty()) continue;
      CAPTURE(file);
      CAPTURE(c.name);
      auto plan = std::make_shared<Plan>();
      plan->graph = parse_graph(c.graph);
      plan->target = device::cuda_target(90);
      auto e = Executable::create(plan, *r, plan->target);
      auto expected = interp::run(e->graph(), c.inputs).outputs;
      Context context = e->context();
      for (int round = 0; round < 3; ++round) {
        auto got = context.run(c.inputs);
        for (size_t i = 0; i < got.size(); ++i) {
          const Tensor &a = got[i].tensor, &b = expected[i].tensor;
          bool same_value = a.defined() == b.defined() && (!a.defined() || a.same_bytes(b));
          CHECK(same_value);
        }
      }
      ++cases;
    }
  CHECK(cases > 2000);
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
    expect_error(ErrorCode::bad_shape, {"index lies outside", "look/up"},
                 [&] { c.run({Tensor::from<float>({1}, {-4})}); });
  }
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
