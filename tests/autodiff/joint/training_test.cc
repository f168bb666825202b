// SPDX-License-Identifier: Apache-2.0
// Whole training steps through the compiler: equal to the interpreter for three steps, no node left to the
// reference, backward FLOPs within four times the forward ones.
#include <doctest/doctest.h>

#include <cmath>

#include "autodiff/joint/nets.h"
#include "compiler/compile.h"
#include "interp/interpreter.h"
#include "ir/verify.h"
#include "register/registry.h"
#include "runtime/executable.h"

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
