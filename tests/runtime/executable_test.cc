// SPDX-License-Identifier: Apache-2.0
#include "runtime/executable.h"

#include <doctest/doctest.h>

#include <thread>

#include "base/clock.h"
#include "interp/interpreter.h"
#include "ir/text.h"
#include "runtime/test_kernels.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::runtime;
using pelton::test::expect_error;
using pelton::test::KernelCounts;

namespace {

const backend::Registry& registry() {
  static backend::Registry* r = [] {
    auto* made = new backend::Registry;
    test::add_test_kernels(*made);
    return made;
  }();
  return *r;
}

std::shared_ptr<const Executable> load(const std::string& text, ExecutableOptions options = {}) {
  auto plan = std::make_shared<Plan>();
  plan->graph = parse_graph(text);
  device::Target target = device::detect_cpu(1);
  plan->choices = choose_all(plan->graph, registry(), target);
  plan->target = target;
  options.check_memory = true;
  return Executable::create(plan, registry(), target, options);
}

Tensor ramp(Dims dims, float start = 0) {
  Tensor t(DType::f32, dims);
  for (int64_t i = 0; i < t.count(); ++i) t.set_double(i, start + static_cast<double>(i) * 0.25);
  return t;
}

void same_as_interpreter(const Executable& e, const std::vector<Tensor>& inputs) {
  std::vector<HostValue> values(inputs.begin(), inputs.end());
  auto expected = interp::run(e.graph(), values).outputs;
  auto got = e.run(values);
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].tensor.str() == expected[i].tensor.str());
    CHECK(got[i].tensor.same_bytes(expected[i].tensor));
  }
}

const char* kChain = R"(graph "chain"(%x: f32[N,4], %b: f32[4]) {
  symbol N in [0, 1000]
  %0 = add(%x, %b) : f32[N,4]
  %1 = neg(%0) : f32[N,4]
  %2 = mul(%1, %0) : f32[N,4]
  %3 = reshape(%2) {dims = dims[4*N]} : f32[4*N]
  %4 = neg(%3) : f32[4*N]
  %5 = add(%4, %3) : f32[4*N]
  return %5 @"y", %1 @"z"
})";

}  // namespace

TEST_CASE("runtime: choices say which implementation runs and why earlier ones do not") {
  auto e = load(kChain);
  CHECK(e->choices()[0].implementation == "test.point");
  CHECK(e->choices()[1].implementation == "test.point");
  REQUIRE(e->choices()[1].refusals.size() == 1);
  CHECK(e->choices()[1].refusals[0].reason == "is only a decoy");
  CHECK(e->choices()[2].implementation == kReference);
  CHECK(e->choices()[3].implementation == kNothing);
}

TEST_CASE("runtime: kernels, reference nodes and views give what the interpreter gives") {
  auto e = load(kChain);
  for (int64_t n : {3, 1, 0, 17, 3}) same_as_interpreter(*e, {ramp({n, 4}), ramp({4}, 1)});
}

TEST_CASE("runtime: what is reported to have run is what was chosen") {
  auto e = load(kChain);
  std::vector<std::string> ran;
  RunOptions options;
  options.observe = [&](const StepEvent& event) {
    ran.push_back(cat(event.graph.op(event.node).name, ":", std::string(event.implementation)));
    CHECK(event.end_ns >= event.start_ns);
    CHECK(event.outputs[0].tensor.defined());
  };
  e->run({ramp({2, 4}), ramp({4})}, options);
  CHECK(ran == std::vector<std::string>{"add:test.point", "neg:test.point", "mul:reference", "neg:test.point",
                                        "add:test.point"});
}

TEST_CASE("runtime: inputs of the wrong count, type, rank or size are refused by name") {
  auto e = load(kChain);
  expect_error(ErrorCode::usage, {"takes 2 inputs", "got 1"}, [&] { e->run({ramp({2, 4})}); });
  expect_error(ErrorCode::bad_type, {"expected f32[4]", "got i64[4]", "input 'b'"}, [&] {
    e->run({ramp({2, 4}), Tensor::zeros(DType::i64, {4})});
  });
  expect_error(ErrorCode::bad_shape, {"expected rank 2", "input 'x'"}, [&] {
    e->run({ramp({8}), ramp({4})});
  });
  expect_error(ErrorCode::bad_shape, {"expected size 4 along axis 1", "[2,5]"}, [&] {
    e->run({ramp({2, 5}), ramp({4})});
  });
  expect_error(ErrorCode::bad_shape, {"N = 1001", "range 0 to 1000", "--shape"}, [&] {
    e->run({ramp({1001, 4}), ramp({4})});
  });
}

TEST_CASE("runtime: a check of a size that the run learns is held against it") {
  auto e = load(R"(graph "late"(%x: f32[N], %m: bool[N]) {
  symbol N in [0, 100]
  symbol u0 in [0, 100]
  check N == 2*u0 @"the reshape"
  %0 = compress(%x, %m) {axis = 0} : f32[u0]
  %1 = concat(%0, %0) {axis = 0} : f32[2*u0]
  %2 = reshape(%1) {dims = dims[N]} : f32[N]
  %3 = neg(%2) : f32[N]
  return %3
})");
  auto mask = [](bool second) { return Tensor::from<bool>({2}, {true, second}); };
  CHECK(e->run({ramp({2}), mask(false)})[0].tensor.dims() == Dims{2});
  expect_error(ErrorCode::bad_shape, {"sizes must satisfy N == 2*u0", "2 and 4", "the reshape"}, [&] {
    e->run({ramp({2}), mask(true)});
  });
  CHECK(e->run({ramp({2}), mask(false)})[0].tensor.dims() == Dims{2});  // the next run is whole
}

TEST_CASE("runtime: a size that only a check names is solved from it") {
  auto e = load(R"(graph "solved"(%x: f32[N]) {
  symbol N in [0, 100]
  symbol M in [0, 1000]
  check M == 2*N @"test"
  %0 = concat(%x, %x) {axis = 0} : f32[2*N]
  %1 = reshape(%0) {dims = dims[M, 1]} : f32[M,1]
  %2 = neg(%1) : f32[M,1]
  return %2
})");
  CHECK(e->run({ramp({3})})[0].tensor.dims() == Dims{6, 1});
}

TEST_CASE("runtime: kernels are prepared once a size and at most max_programs sizes are kept") {
  ExecutableOptions options;
  options.max_programs = 2;
  int before = KernelCounts::alive;
  auto e = load(kChain, options);
  auto run = [&](int64_t n) { e->run({ramp({n, 4}), ramp({4})}); };
  int start = KernelCounts::prepared;
  run(2);
  run(2);
  CHECK(KernelCounts::prepared - start == 4);
  run(3);
  CHECK(KernelCounts::prepared - start == 8);
  run(4);
  CHECK(KernelCounts::prepared - start == 12);
  run(3);
  CHECK(KernelCounts::prepared - start == 12);
  CHECK(KernelCounts::alive - before <= 3 * 4);  // two kept, one still loaded by the pooled context
  run(2);
  CHECK(KernelCounts::prepared - start == 16);
}

TEST_CASE("runtime: bound runs read and write the caller's buffers") {
  auto e = load(kChain);
  Context c = e->context();
  Tensor x = ramp({2, 4}), b = ramp({4}, 5);
  std::vector<float> y(8, 0), z(8, 0);
  c.bind_input(0, {2, 4}, x.data());
  c.bind_input(1, {4}, b.data());
  CHECK(c.output_dims() == std::vector<Dims>{{8}, {2, 4}});
  c.bind_output(0, y.data(), 32);
  c.bind_output(1, z.data(), 32);
  c.run_bound();
  auto expected = interp::run(e->graph(), {x, b}).outputs;
  CHECK(std::memcmp(y.data(), expected[0].tensor.data(), 32) == 0);
  CHECK(std::memcmp(z.data(), expected[1].tensor.data(), 32) == 0);
  // A second run sees new contents of the same buffers, and another buffer once bound.
  x.as_mutable<float>()[0] = 100;
  std::vector<float> other(8, 0);
  c.bind_output(1, other.data(), 32);
  c.run_bound();
  expected = interp::run(e->graph(), {x, b}).outputs;
  CHECK(std::memcmp(y.data(), expected[0].tensor.data(), 32) == 0);
  CHECK(std::memcmp(other.data(), expected[1].tensor.data(), 32) == 0);
  c.bind_output(0, y.data(), 28);
  expect_error(ErrorCode::bad_shape, {"has 28 bytes", "needs 32", "output 'y'"}, [&] { c.run_bound(); });
  expect_error(ErrorCode::usage, {"2 inputs", "index 2"}, [&] { c.bind_input(2, {1}, x.data()); });
}

TEST_CASE("runtime: cancelling and deadlines act between nodes") {
  auto e = load(kChain);
  std::atomic<bool> cancel{true};
  RunOptions options;
  options.cancel = &cancel;
  expect_error(ErrorCode::cancelled, {"cancelled", "before add"}, [&] {
    e->run({ramp({2, 4}), ramp({4})}, options);
  });
  cancel = false;
  options.deadline_ns = now_ns() - 1;
  expect_error(ErrorCode::deadline, {"deadline", "before add"}, [&] {
    e->run({ramp({2, 4}), ramp({4})}, options);
  });
  options.deadline_ns = now_ns() + int64_t{60} * 1000000000;
  CHECK(e->run({ramp({2, 4}), ramp({4})}, options).size() == 2);
}

TEST_CASE("runtime: contexts are bounded, and threads share one plan") {
  ExecutableOptions options;
  options.max_contexts = 2;
  options.wait_ns = 0;
  auto e = load(kChain, options);
  {
    Context a = e->context(), b = e->context();
    expect_error(ErrorCode::busy, {"all 2 contexts", "max_contexts"}, [&] { e->context(); });
  }
  Context again = e->context();
  CHECK(e->memory().contexts == 2);

  auto shared = load(kChain);
  std::vector<HostValue> in = {ramp({5, 4}), ramp({4}, 3)};
  auto expected = interp::run(shared->graph(), in).outputs;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i)
        if (!shared->run(in)[0].tensor.same_bytes(expected[0].tensor)) ++wrong;
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("runtime: memory is known before the first run, a budget is kept") {
  auto e = load(kChain);
  CHECK(e->memory().arena == 0);
  e->prepare({{100, 4}, {4}});
  Memory m = e->memory();
  // %0, %2 and %4 with scratch: at no time more than three blocks of 1600 bytes and one scratch.
  CHECK(m.arena >= 2 * 1600);
  CHECK(m.arena <= 4 * 1664);
  CHECK(m.scratch == 1600);
  CHECK(m.contexts == 0);
  ExecutableOptions options;
  options.memory_budget_bytes = 1000;
  auto small = load(kChain, options);
  small->run({ramp({1, 4}), ramp({4})});
  expect_error(ErrorCode::limit, {"arena of graph 'chain'", "memory budget is 1000"}, [&] {
    small->run({ramp({100, 4}), ramp({4})});
  });
}

TEST_CASE("runtime: state slots keep their values between runs of a context") {
  auto e = load(R"(graph "count"(%x: f32[2]) {
  slot %sum counter "sum" : f32[2] = tensor<f32[2]>{1, 2}
  %next = add(%sum, %x) : f32[2]
  next %sum = %next
  return %sum @"old", %next @"new"
})");
  Context c = e->context();
  Tensor x = Tensor::from<float>({2}, {10, 20});
  auto first = c.run_tensors({x});
  CHECK(first[0].same_bytes(Tensor::from<float>({2}, {1, 2})));
  CHECK(first[1].same_bytes(Tensor::from<float>({2}, {11, 22})));
  auto second = c.run_tensors({x});
  CHECK(second[0].same_bytes(Tensor::from<float>({2}, {11, 22})));
  CHECK(second[1].same_bytes(Tensor::from<float>({2}, {21, 42})));
  CHECK(first[1].same_bytes(Tensor::from<float>({2}, {11, 22})));  // results are not overwritten later
  CHECK(c.state(0).same_bytes(second[1]));
  c.set_state(0, Tensor::from<float>({2}, {0, 0}));
  CHECK(c.run_tensors({x})[1].same_bytes(x));
  c.reset_state();
  CHECK(c.run_tensors({x})[0].same_bytes(Tensor::from<float>({2}, {1, 2})));
}

TEST_CASE("runtime: results that are inputs, constants, views or the same value twice") {
  auto e = load(R"(graph "edges"(%x: f32[2,3]) {
  %c = constant() {value = tensor<f32[2]>{5, 6}} : f32[2]
  %v = reshape(%x) {dims = dims[6]} : f32[6]
  %n = neg(%x) : f32[2,3]
  %r = reshape(%n) {dims = dims[3,2]} : f32[3,2]
  return %x, %c, %v, %n, %r, %n
})");
  same_as_interpreter(*e, {ramp({2, 3})});
  Context c = e->context();
  Tensor x = ramp({2, 3});
  std::vector<float> n(6), r(6), v(6);
  c.bind_input(0, {2, 3}, x.data());
  c.bind_output(2, v.data(), 24);
  c.bind_output(3, n.data(), 24);
  c.bind_output(4, r.data(), 24);
  c.run_bound();
  for (size_t i = 0; i < 6; ++i) {
    CHECK(v[i] == x.as<float>()[i]);
    CHECK(n[i] == -x.as<float>()[i]);
    CHECK(r[i] == n[i]);
  }
}
