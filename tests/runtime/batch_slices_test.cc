// SPDX-License-Identifier: Apache-2.0
#include "runtime/batch_slices.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <map>

#include "interp/interpreter.h"
#include "ir/text.h"
#include "runtime/executable.h"
#include "runtime/test_kernels.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::runtime;

namespace {

const backend::Registry& registry() {
  static backend::Registry* r = [] {
    auto* made = new backend::Registry;
    test::add_test_kernels(*made);
    return made;
  }();
  return *r;
}

std::shared_ptr<const Executable> load(const std::string& text) {
  auto plan = std::make_shared<Plan>();
  plan->graph = parse_graph(text);
  const device::Target target = device::detect_cpu(1);
  plan->choices = choose_all(plan->graph, registry(), target);
  plan->target = target;
  return Executable::create(plan, registry(), target, {.check_memory = true});
}

// Items of 512 KiB. %before is made of the whole batch and enters the stretch twice, %sum enters it and
// leaves it, %seen is a view of a value inside, %mixed mixes items.
const char* kChain = R"(graph "chain"(%x: f32[N,131072], %b: f32[131072]) {
  symbol N in [0, 1000]
  %all = reshape(%x) {dims = dims[131072*N]} : f32[131072*N]
  %turned = neg(%all) : f32[131072*N]
  %before = reshape(%turned) {dims = dims[N, 131072]} : f32[N,131072]
  %sum = add(%before, %b) : f32[N,131072]
  %neg = neg(%sum) : f32[N,131072]
  %seen = reshape(%neg) {dims = dims[N, 2, 65536]} : f32[N,2,65536]
  %back = neg(%seen) : f32[N,2,65536]
  %flat = reshape(%back) {dims = dims[N, 131072]} : f32[N,131072]
  %again = add(%flat, %before) : f32[N,131072]
  %twice = add(%again, %sum) : f32[N,131072]
  %line = reshape(%twice) {dims = dims[131072*N]} : f32[131072*N]
  %mixed = neg(%line) : f32[131072*N]
  return %mixed @"y", %sum @"z"
})";

Tensor ramp(Dims dims) {
  Tensor t(DType::f32, std::move(dims));
  auto* data = static_cast<float*>(t.mutable_data());
  for (int64_t i = 0; i < t.count(); ++i) data[i] = static_cast<float>(i % 8191) * 0.25f;
  return t;
}

}  // namespace

TEST_CASE("batch slices: a run in slices gives what the interpreter gives, in less arena") {
  ::setenv("PELTON_POISON", "1", 1);
  for (int64_t n : {8, 6, 7, 1}) {
    CAPTURE(n);
    auto e = load(kChain);
    const std::vector<HostValue> inputs = {ramp({n, 131072}), ramp({131072})};
    auto expected = interp::run(e->graph(), inputs).outputs;
    Context context = e->context();
    for (int run = 0; run < 2; ++run) {
      auto got = context.run(inputs);
      for (size_t i = 0; i < got.size(); ++i) CHECK(got[i].tensor.same_bytes(expected[i].tensor));
    }
    // Whole, three values and a scratch of n items are alive at once.
    if (n == 8) CHECK(e->memory().arena < 3 * n * 131072 * 4);
  }
  ::unsetenv("PELTON_POISON");
}

TEST_CASE("batch slices: every slice is reported with its part of the values") {
  // Two items a slice where the batch is even: two threads have one each.
  for (const auto& [items, slices] : {std::pair<int64_t, int64_t>{8, 4}, {7, 7}}) {
    CAPTURE(items);
    auto e = load(kChain);
    const std::vector<HostValue> inputs = {ramp({items, 131072}), ramp({131072})};
    std::map<std::string, int64_t> seen;
    RunOptions options;
    options.plain_values = true;
    options.observe = [&, items = items](const StepEvent& event) {
      const Tensor& y = event.outputs[0].tensor;
      const std::string label = event.graph.label(event.graph[event.node].outputs[0]);
      CHECK(event.slice == seen[label]++);
      if (event.slices > 1) CHECK(y.dims()[0] * event.slices == items);
      if (label == "%sum") {
        const auto* all = static_cast<const float*>(inputs[0].tensor.data()) + event.slice * y.count();
        CHECK(static_cast<const float*>(y.data())[100] == 25 - all[100]);
      }
    };
    e->run(inputs, options);
    CHECK(seen["%sum"] == slices);
    CHECK(seen["%twice"] == slices);
    CHECK(seen["%mixed"] == 1);
  }
}

TEST_CASE("batch slices: which nodes map a batch") {
  const Graph g = parse_graph(
      R"(graph "g"(%x: f32[N,4,6,6], %w: f32[5,4,3,3], %s: f32[4,1,1]) {
  symbol N in [1, 100]
  %conv = conv(%x, %w) : f32[N,5,4,4]
  %mul = mul(%x, %s) : f32[N,4,6,6]
  %mean = reduce_mean(%x) {axes = [2, 3]} : f32[N,4]
  %over = reduce_sum(%x) {axes = [0]} : f32[4,6,6]
  %cat = concat(%x, %x) {axis = 1} : f32[N,8,6,6]
  %long = concat(%x, %x) {axis = 0} : f32[2*N,4,6,6]
  %soft = softmax(%mean) {axis = 0} : f32[N,4]
  %turn = transpose(%mean) {perm = [1, 0]} : f32[4,N]
  %flat = reshape(%x) {dims = dims[N, 144]} : f32[N,144]
  %cut = slice(%x) {axes = [0], starts = dims[0], sizes = dims[N], steps = [1]} : f32[N,4,6,6]
  %sum = cumsum(%x) {axis = 0} : f32[N,4,6,6]
  %fused = fused(%x, %s) {body = graph "pointwise"(%0: f32[N,4,6,6], %1: f32[4,1,1]) {
    %2 = add(%0, %1) : f32[N,4,6,6]
    %3 = relu(%2) : f32[N,4,6,6]
    return %3
  }, kind = "pointwise"} : f32[N,4,6,6]
  return %conv, %mul, %over, %cat, %long, %soft, %turn, %flat, %cut, %sum, %fused
})");
  std::string yes;
  for (NodeId id : g.order())
    if (maps_batch(g, id, "N")) yes += g.label(g[id].outputs[0]) + " ";
  CHECK(yes == "%conv %mul %mean %cat %flat %fused ");
}
