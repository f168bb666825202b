// SPDX-License-Identifier: Apache-2.0
// Whole training steps through the compiler: equal to the interpreter for three steps, no node left to the
// reference, backward FLOPs within four times the forward ones.
#include <doctest/doctest.h>

#include <cmath>

#include "autodiff/autodiff.h"
#include "autodiff/joint/nets.h"
#include "autodiff/recompute.h"
#include "compiler/compile.h"
#include "interp/interpreter.h"
#include "ir/verify.h"
#include "register/registry.h"
#include "runtime/executable.h"
#include "runtime/plugin.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::test;

namespace {

double flops(const Graph& g, NodeId id) {
  const Node& n = g[id];
  if (!n.op->flops) return 0;
  auto sizes = [&](const std::vector<ValueId>& values) {
    std::vector<Dims> out;
    for (ValueId v : values) out.push_back(v ? *as_dims(g.type(v).shape) : Dims());
    return out;
  };
  return n.op->flops(g, n, sizes(n.inputs), sizes(n.outputs));
}

// Runs `steps` steps both ways; state and loss agree within `bound` times the largest element.
void check_steps(const TrainingStep& step, double bound) {
  verify(step.graph, "step");
  device::Target target = find_device("cpu", 2);
  compiler::Options options;
  options.verify_each = true;
  auto plan = std::make_shared<runtime::Plan>(compiler::compile(step.graph, target, options, registry()));
  for (const runtime::Choice& c : plan->choices) {
    std::string refusals;
    for (const auto& r : c.refusals) append(refusals, cat("\n", r.implementation, ": ", r.reason));
    CAPTURE(refusals);
    CHECK(c.implementation != runtime::kReference);
  }
  auto executable = runtime::Executable::create(plan, registry(), target);
  runtime::Context context = executable->context();
  std::vector<HostValue> inputs(step.inputs.begin(), step.inputs.end()), state;
  for (const Slot& s : step.graph.slots) state.emplace_back(s.initial);
  double first = 0, last = 0;
  for (uint64_t k = 0; k < 3; ++k) {
    CAPTURE(k);
    interp::Options reference;
    reference.random = {7, k};
    interp::Result want = interp::run(step.graph, inputs, state, reference);
    runtime::RunOptions run;
    run.random = {7, k};
    std::vector<HostValue> got = context.run(inputs, run);
    last = want.outputs[0].tensor.get_double(0);
    if (k == 0) first = last;
    CHECK(got[0].tensor.get_double(0) == doctest::Approx(last).epsilon(bound));
    for (size_t i = 0; i < state.size(); ++i) {
      const Slot& s = step.graph.slots[i];
      if (!s.next) continue;
      CAPTURE(s.name);
      state[i] = want.next_state[i];
      const Tensor &w = state[i].tensor, &t = context.state(i);
      REQUIRE(t.str() == w.str());
      double top = 0, worst = 0;
      for (int64_t e = 0; e < w.count(); ++e) {
        top = std::max(top, std::fabs(w.get_double(e)));
        worst = std::max(worst, std::fabs(w.get_double(e) - t.get_double(e)));
      }
      CHECK(worst <= bound * std::max(top, 0.01));
    }
  }
  CHECK(last < first);  // it learns
}

void check_flops(const TrainingStep& step) {
  double forward = 0, backward = 0;
  const std::vector<NodeId>& order = step.graph.order();
  for (size_t i = 0; i < order.size(); ++i)
    if (step.graph[order[i]].name != "update")
      (i < step.forward_nodes ? forward : backward) += flops(step.graph, order[i]);
  CAPTURE(forward);
  CAPTURE(backward);
  CHECK(forward > 0);
  CHECK(backward <= 4 * forward);
  CHECK(backward >= forward);
}

}  // namespace

TEST_CASE("steps of an MLP, a CNN and a transformer equal the interpreter's") {
  // Sums of a few hundred f32 products in another order, over three steps.
  check_steps(mlp_step(), 1e-4);
  check_steps(cnn_step(), 1e-4);
  check_steps(transformer_step(), 1e-4);
}

TEST_CASE("the backward pass costs at most four times the forward pass") {
  check_flops(mlp_step());
  check_flops(cnn_step());
  check_flops(transformer_step());
}

TEST_CASE("a step in bf16 follows the one in f32, and names keep their layers in f32") {
  TrainingStep step = cnn_step();
  device::Target target = find_device("cpu", 2);
  compiler::Options options;
  options.precision = "bf16";
  options.full_precision = {"conv1", "fc"};
  auto plan = std::make_shared<runtime::Plan>(compiler::compile(step.graph, target, options, registry()));
  bool lowered = false;
  for (NodeId id : plan->graph.order()) {
    const Node& n = plan->graph[id];
    if (n.op->family != Family::convolution && !n.is("fused")) continue;
    bool low = plan->graph.type(n.inputs[0]).dtype == DType::bf16;
    lowered |= low;
    if (n.name == "conv1" || n.name.starts_with("conv1/")) CHECK_FALSE(low);
  }
  CHECK(lowered);
  auto executable = runtime::Executable::create(plan, registry(), target);
  runtime::Context context = executable->context();
  std::vector<HostValue> inputs(step.inputs.begin(), step.inputs.end());
  interp::Options reference;
  reference.random = {7, 0};
  runtime::RunOptions run;
  run.random = {7, 0};
  double want = interp::run(step.graph, inputs, {}, reference).outputs[0].tensor.get_double(0);
  double first = context.run(inputs, run)[0].tensor.get_double(0);
  // bf16 has 8 bits: a few roundings of 0.4% in the logits.
  CHECK(first == doctest::Approx(want).epsilon(0.02));
  double last = first;
  for (int k = 0; k < 4; ++k) last = context.run(inputs, run)[0].tensor.get_double(0);
  CHECK(last < first);
}

TEST_CASE("recomputation survives the compiler and lowers the arena") {
  TrainingStep step = chain_step();
  device::Target target = find_device("cpu", 2);
  int64_t arena[2];
  double loss[2];
  for (int again : {0, 1}) {
    Graph g = step.graph;
    if (again) {
      Graph copy = g;
      int64_t all = autodiff::recompute(copy, step.forward_nodes, INT64_MAX).kept_bytes_before;
      autodiff::Recomputation r = autodiff::recompute(g, step.forward_nodes, all / 3);
      CHECK(r.kept_bytes <= all / 3);
    }
    auto plan = std::make_shared<runtime::Plan>(compiler::compile(g, target, {}, registry()));
    auto executable = runtime::Executable::create(plan, registry(), target);
    std::vector<HostValue> inputs(step.inputs.begin(), step.inputs.end());
    runtime::Context context = executable->context();
    for (int k = 0; k < 2; ++k) loss[again] = context.run(inputs)[0].tensor.get_double(0);
    arena[again] = executable->memory().arena;
  }
  CAPTURE(arena[0]);
  CAPTURE(arena[1]);
  CHECK(loss[1] == doctest::Approx(loss[0]).epsilon(1e-6));
  CHECK(arena[1] < arena[0] * 3 / 4);
}

TEST_CASE("training goes through a plug-in's op by the gradient that it names") {
  runtime::load_plugin(PELTON_EXAMPLE_PLUGIN);
  Graph g;
  ValueId x = g.add_input(Type::tensor(DType::f32, {4, 3})),
          w = g.add_input(Type::tensor(DType::f32, {4, 3}));
  Builder b(g);
  b.set_name("clip");
  ValueId clipped = b.op("custom", {x},
                         {{"domain", std::string("example")},
                          {"name", std::string("clip_norm")},
                          {"attributes", std::string("{\"limit\": 1.5}")}});
  // The same from primitives.
  ValueId length = b.op("sqrt", {b.reduce("reduce_sum", b.op("square", {x}), {1}, true)});
  ValueId scale = b.op("min", {b.div(b.like(x, 1.5), length), b.like(x, 1)});
  std::vector<ValueId> outputs;
  for (ValueId y : {clipped, b.mul(x, scale)}) {
    ValueId loss = b.reduce("reduce_sum", b.mul(y, w), {0, 1}, false);
    outputs.push_back(autodiff::gradient(g, loss, std::vector<ValueId>{x})[0]);
  }
  for (ValueId v : outputs) g.add_output(v);
  device::Target target = find_device("cpu", 2);
  auto plan = std::make_shared<runtime::Plan>(compiler::compile(g, target, {}, registry()));
  auto executable = runtime::Executable::create(plan, registry(), target);
  std::vector<double> values{0.1, 0.2, 0.3, 3, -4, 1, 2, 2, -2, 0.5, -0.5, 0.1}, weights;
  for (size_t i = 0; i < values.size(); ++i) weights.push_back(1 - 0.3 * static_cast<double>(i % 5));
  auto got = executable->run({HostValue(from_doubles(DType::f32, {4, 3}, values)),
                              HostValue(from_doubles(DType::f32, {4, 3}, weights))});
  for (int64_t i = 0; i < 12; ++i)
    CHECK(got[0].tensor.get_double(i) == doctest::Approx(got[1].tensor.get_double(i)).epsilon(1e-5));
}
