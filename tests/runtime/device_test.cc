// SPDX-License-Identifier: Apache-2.0
// Plans on a device with memory of its own, by a device that is one only in its rules (fake_device.h).
#include <doctest/doctest.h>

#include "runtime/device_plans.h"
#include "support/op_cases.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::runtime;
using namespace pelton::test;

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
