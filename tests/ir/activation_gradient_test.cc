// SPDX-License-Identifier: Apache-2.0
#include "ir/activation_gradient.h"

#include <doctest/doctest.h>

#include "base/cat.h"
#include "ir/gradient.h"
#include "ir/text.h"

using namespace pelton;
using namespace pelton::ir;

namespace {

constexpr const char* kRelu = R"(graph "g"(%y: bf16[3,4], %g: bf16[3,4]) {
  %w = cast(%y) {to = f32} : f32[3,4]
  %0 = constant() {value = tensor<f32[]>{0}} : f32[]
  %p = gt(%w, %0) : bool[3,4]
  %z = constant() {value = tensor<bf16[]>{ZERO}} : bf16[]
  %r = select(%p, %g, %z) : bf16[3,4]
  return %r
})";
std::string relu(const char* zero) {
  std::string text = kRelu;
  return text.replace(text.find("ZERO"), 4, zero);
}

// The rule of gelu on data of 16 bits, computed in f32; `swap` turns its last product around.
Graph gelu(bool tanh, bool swap, bool round_inside) {
  Graph g;
  const ValueId x = g.add_input(Type::tensor(DType::bf16, {8})),
                gradient = g.add_input(Type::tensor(DType::bf16, {8}));
  Builder b(g);
  const ValueId wide = b.cast(x, DType::f32);
  const ValueId y = b.op("gelu", {wide}, {{"tanh", tanh}});
  ValueId up = b.cast(gradient, DType::f32);
  if (round_inside) up = b.cast(b.cast(b.op("neg", {up}), DType::bf16), DType::f32);
  GradientContext c(g, g[y].producer, {up}, {true});
  g[g[y].producer].op->gradient(c);
  ValueId d = c.input_grads()[0];
  if (swap) {
    const Node n = g[g[d].producer];
    d = b.mul(n.inputs[1], n.inputs[0]);
  }
  g.add_output(b.cast(d, DType::bf16));
  return g;
}

}  // namespace

TEST_CASE("activation_gradient: a ReLU's by its result, behind a cast") {
  const Graph g = parse_graph(relu("0"));
  const auto found = activation_gradient(g, g.outputs[0]);
  REQUIRE(found);
  CHECK(found->kind == ActivationGradient::relu);
  CHECK(found->x == g.inputs[0]);
  CHECK(found->gradient == g.inputs[1]);
  CHECK(found->nodes.size() == 3);
  const Graph leaky = parse_graph(relu("1"));
  CHECK(!activation_gradient(leaky, leaky.outputs[0]));
  CHECK(!activation_gradient(g, g.inputs[1]));
}

TEST_CASE("activation_gradient: GELU's tanh form, however its products are turned") {
  for (bool swap : {false, true}) {
    const Graph g = gelu(true, swap, false);
    const auto found = activation_gradient(g, g.outputs[0]);
    REQUIRE(found);
    CHECK(found->kind == ActivationGradient::gelu_tanh);
    CHECK(found->x == g.inputs[0]);
    CHECK(found->gradient == g.inputs[1]);
  }
  const Graph exact = gelu(false, false, false);
  CHECK(!activation_gradient(exact, exact.outputs[0]));
  // The gradient that it takes is what was rounded, not what is in front of that.
  const Graph rounded = gelu(true, false, true);
  const auto found = activation_gradient(rounded, rounded.outputs[0]);
  REQUIRE(found);
  CHECK(rounded.type(found->gradient).dtype == DType::bf16);
  CHECK(found->gradient != rounded.inputs[1]);
}
