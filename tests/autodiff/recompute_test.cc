// SPDX-License-Identifier: Apache-2.0
// Recomputation by a budget: the same gradients, bit for bit, from fewer kept bytes.
#include <doctest/doctest.h>

#include "autodiff/autodiff.h"
#include "autodiff/recompute.h"
#include "base/philox.h"
#include "interp/interpreter.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "ir/verify.h"

using namespace pelton;
using namespace pelton::ir;

namespace {

struct Step {
  Graph graph;
  size_t forward = 0;
  std::vector<HostValue> inputs;
};

// Four layers of product, GELU, dropout and layer norm on [N, 8].
Step chain() {
  Step s;
  Graph& g = s.graph;
  Builder b(g);
  RandomStream stream{1, 2, 3};
  uint64_t next = 0;
  auto input = [&](Shape shape, Dims dims) {
    Tensor t = Tensor::zeros(DType::f32, std::move(dims));
    for (int64_t i = 0; i < t.count(); ++i) t.set_double(i, stream.normal(next++));
    s.inputs.emplace_back(t);
    return g.add_input(Type::tensor(DType::f32, std::move(shape)));
  };
  g.symbols->ranges["N"] = {1, 64};
  ValueId x = input({Dim::symbol("N"), 8}, {16, 8});
  std::vector<ValueId> weights;
  for (int layer = 0; layer < 4; ++layer) {
    b.set_name(cat("layer", layer));
    weights.push_back(input({8, 8}, {8, 8}));
    x = b.op("gelu", {b.matmul(x, weights.back())});
    x = b.op("layer_norm", {b.op("dropout", {x, b.scalar(DType::f32, 0.3)})});
  }
  ValueId loss = b.reduce("reduce_sum", b.op("square", {x}), {0, 1}, false);
  g.outputs = {loss};
  s.forward = g.node_count();
  for (ValueId v : autodiff::gradient(g, loss, weights)) g.outputs.push_back(v);
  return s;
}

}  // namespace

TEST_CASE("smaller budgets keep less, cost more, and change no bit") {
  const SymbolValues sizes{{"N", 16}};
  Step plain = chain();
  interp::Options options;
  options.random = {5, 6};
  auto want = interp::run(plain.graph, plain.inputs, {}, options).outputs;
  autodiff::Recomputation before;
  int64_t all = 0;
  for (int64_t part : {100, 50, 25, 0}) {
    CAPTURE(part);
    Step s = chain();
    if (all == 0) {
      Graph copy = s.graph;
      all = autodiff::recompute(copy, s.forward, INT64_MAX, sizes).kept_bytes_before;
      CHECK(all > 16 * 8 * 4 * 8);
    }
    autodiff::Recomputation r = autodiff::recompute(s.graph, s.forward, all * part / 100, sizes);
    verify(s.graph, "recompute");
    CHECK(r.kept_bytes_before == all);
    if (part) CHECK(r.kept_bytes <= all * part / 100);
    if (part < 100) {
      CHECK(r.flops > before.flops);
      CHECK(r.kept_bytes < (before.values ? before.kept_bytes : all));
      bool waits = false;
      for (NodeId id : s.graph.order()) waits |= s.graph[id].is("after");
      CHECK(waits);
    } else {
      CHECK(r.values == 0);
    }
    before = r;
    auto got = interp::run(s.graph, s.inputs, {}, options).outputs;
    for (size_t i = 0; i < want.size(); ++i) CHECK(got[i].tensor.same_bytes(want[i].tensor));
  }
}
