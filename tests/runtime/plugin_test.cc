// SPDX-License-Identifier: Apache-2.0
// Plug-ins below the command line: memory of a context, effects, results in place, implementations. The
// library is examples/custom_op/kinds.c.
#include "runtime/plugin.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>

#include "interp/interpreter.h"
#include "ir/builder.h"
#include "ir/custom.h"
#include "ir/gradient.h"
#include "ir/infer.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "runtime/executable.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::runtime;
using pelton::test::expect_error;

namespace {

const backend::Registry& registry() {
  static backend::Registry* r = [] {
    load_plugin(PELTON_EXAMPLE_PLUGIN);
    auto* made = new backend::Registry;
    for (backend::Implementation& i : plugin_implementations()) made->add(std::move(i));
    made->add(plugin_implementation());
    return made;
  }();
  return *r;
}

std::shared_ptr<const Executable> load(const std::string& text) {
  const backend::Registry& r = registry();  // before the text is read, which names ops of the plug-in
  auto plan = std::make_shared<Plan>();
  plan->graph = parse_graph(text);
  verify(plan->graph, "test");
  plan->target = device::detect_cpu(1);
  plan->choices = choose_all(plan->graph, r, plan->target);
  ExecutableOptions options;
  options.check_memory = true;
  return Executable::create(plan, r, plan->target, options);
}

Tensor row(std::vector<double> values) {
  return from_doubles(DType::f32, {static_cast<int64_t>(values.size())}, values);
}

const char* kCounting = R"(graph "g"(%x: f32[2]) {
  %t = token() : token
  %0, %t1 = custom(%x, %t) {domain = "example", name = "run_number"} : f32[2], token
  %1, %t2 = custom(%0, %t1) {domain = "example", name = "run_number"} : f32[2], token
  return %1 @"y"
})";

}  // namespace

TEST_CASE("plug-in: a context keeps the memory of a node, and a new one starts with zeros") {
  auto e = load(kCounting);
  CHECK(e->choices()[1].implementation == "plugin");
  Context first = e->context(), second = e->context();
  auto run = [](Context& c) { return c.run_tensors({row({1, 2})})[0].get_double(0); };
  CHECK(run(first) == 1);
  CHECK(run(first) == 3);  // each node counts for itself
  CHECK(run(first) == 5);
  CHECK(run(second) == 1);
  { Context gone = std::move(first); }
  Context again = e->context();
  CHECK(run(again) == 1);
}

TEST_CASE("plug-in: memory of nodes in sub-graphs of sub-graphs goes with the context") {
  auto e = load(R"(graph "g"(%x: f32[2], %c: bool[]) {
  %t = token() : token
  %0, %t1 = if(%c, %x, %t) {else = graph "e"(%a: f32[2], %u: token) {
    return %a, %u
  }, then = graph "o"(%a: f32[2], %u: token) {
    %d = constant() {value = tensor<bool[]>{true}} : bool[]
    %0, %v = if(%d, %a, %u) {else = graph "f"(%b: f32[2], %w: token) {
      return %b, %w
    }, then = graph "i"(%b: f32[2], %w: token) {
      %0, %z = custom(%b, %w) {domain = "example", name = "run_number"} : f32[2], token
      return %0, %z
    }} : f32[2], token
    return %0, %v
  }} : f32[2], token
  return %0 @"y"
})");
  const Tensor yes = from_doubles(DType::boolean, {}, {1});
  auto run = [&](Context& c) { return c.run_tensors({row({1, 2}), yes})[0].get_double(0); };
  {
    Context first = e->context();
    CHECK(run(first) == 1);
    CHECK(run(first) == 2);
  }
  Context again = e->context();
  CHECK(run(again) == 1);
}

TEST_CASE("plug-in: effects are ordered by tokens") {
  registry();
  const char* loose = R"(graph "g"(%x: f32[2]) {
  %0 = custom(%x) {domain = "example", name = "run_number"} : f32[2]
  return %0
})";
  expect_error(ErrorCode::bad_type, {"C1", "has effects, so its last operand must be a token"},
               [&] { parse_graph(loose); });
  Graph g = parse_graph(kCounting);
  for (NodeId id : g.order()) CHECK((effects_of(g[id]) == Effects::ordered) == g[id].is("custom"));
}

TEST_CASE("plug-in: the decomposition is the definition, and a result may lie in its operand's bytes") {
  auto e = load(R"(graph "g"(%x: f32[N]) {
  symbol N in [0, 100]
  %0 = neg(%x) : f32[N]
  %1 = custom(%0) {attributes = "{\"scale\": 3, \"shift\": 0.5}", domain = "example", name = "scale_shift"} : f32[N]
  %2 = neg(%1) : f32[N]
  return %2 @"y"
})");
  CHECK(e->choices()[0].implementation == "example.neg");
  CHECK(e->choices()[1].implementation == "plugin");
  CHECK(in_place(e->graph()[e->graph().order()[1]]));
  const Tensor x = row({1, -2, 0.25});
  const Tensor y = e->run({HostValue(x)})[0].tensor;
  CHECK(to_doubles(y) == std::vector<double>{2.5, -6.5, 0.25});
  CHECK(interp::run(e->graph(), {HostValue(x)}).outputs[0].tensor.same_bytes(y));
  // %1 takes over the bytes of %0.
  CHECK(e->memory().arena <= 64);
}

TEST_CASE("plug-in: a gradient built from ops of the table") {
  registry();
  Graph g = parse_graph(R"(graph "g"(%x: f32[2], %dy: f32[2]) {
  %0 = custom(%x) {attributes = "{\"scale\": 3}", domain = "example", name = "scale_shift"} : f32[2]
  return %0
})");
  const NodeId id = g.order()[0];
  GradientContext c(g, id, {g.inputs[1]}, {true});
  find_custom_op(g[id])->gradient(c);
  REQUIRE(c.input_grads().size() == 1);
  g.outputs = {c.input_grads()[0]};
  const Tensor dx = interp::run(g, {HostValue(row({1, 2})), HostValue(row({0.5, -1}))}).outputs[0].tensor;
  CHECK(to_doubles(dx) == std::vector<double>{1.5, -3});
}

TEST_CASE("plug-in: attributes of a node that its decomposition cannot use are an error of the plug-in") {
  registry();
  Graph g = parse_graph(R"(graph "g"(%x: f64[2]) {
  %0 = custom(%x) {domain = "example", name = "scale_shift"} : f64[2]
  return %0
})");
  expect_error(ErrorCode::plugin,
               {"example::scale_shift version 1", "its decomposition fails", "f64 and f32"},
               [&] { expand(g, g.order()[0]); });
}

TEST_CASE("plug-in: one with implementations must come before the first model") {
  registry();
  // The same library by another name: its ops are there already, which is found first.
  expect_error(ErrorCode::bad_name, {"example::scale_shift", "exists already"},
               [&] { load_plugin(std::string(PELTON_EXAMPLE_PLUGIN).insert(0, "/./")); });
}

TEST_CASE(
    "plug-in: of a table with a fault nothing is kept, and a kernel that cannot be made leaves no state") {
  registry();
  auto load_it = [] { load_plugin(PELTON_BROKEN_PLUGIN); };
  for (int i = 0; i < 2; ++i) {
    expect_error(ErrorCode::plugin, {"broken.nothing", "which nothing provides"}, load_it);
    CHECK(!find_custom_op("broken", "negative_scratch", 1));
  }
  setenv("BROKEN_PLUGIN_REPAIRED", "1", 1);
  load_it();
  unsetenv("BROKEN_PLUGIN_REPAIRED");
  REQUIRE(find_custom_op("broken", "negative_scratch", 1));
  Graph g = parse_graph(R"(graph "g"(%x: f32[2]) {
  %0 = custom(%x) {domain = "broken", name = "negative_scratch"} : f32[2]
  return %0
})");
  expect_error(ErrorCode::plugin, {"broken::negative_scratch", "asks for -8 bytes of scratch"}, [&] {
    interp::run(g, {HostValue(row({1, 2}))});
  });
  void* library = dlopen(PELTON_BROKEN_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library);
  CHECK(reinterpret_cast<int (*)()>(dlsym(library, "broken_states"))() == 0);
}
