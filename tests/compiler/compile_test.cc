// SPDX-License-Identifier: Apache-2.0
#include "compiler/compile.h"

#include <doctest/doctest.h>

#include "interp/interpreter.h"
#include "ir/builder.h"
#include "ir/text.h"
#include "runtime/refit.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::ir;

namespace {

const char* kModel = R"(graph "m"(%x: f32[N,3,8,8]) {
  symbol N in [1, 64]
  %w = constant() {value = tensor<f32[2,3,1,1]>{1, 2, 3, 4, 5, 6}} : f32[2,3,1,1]
  %c = conv(%x, %w) {strides = [1, 1], dilations = [1, 1], low = dims[0, 0], high = dims[0, 0]} : f32[N,2,8,8]
  %r = relu(%c) : f32[N,2,8,8]
  %s = shape_of(%r) : i64[4]
  %n = slice(%s) {axes = [0], starts = dims[0], sizes = dims[1], steps = [1]} : i64[1]
  %m = constant() {value = tensor<i64[1]>{128}} : i64[1]
  %t = concat(%n, %m) {axis = 0} : i64[2]
  %y = reshape(%r) {dims = dims[N, 128]} : f32[N,128]
  return %y, %t
})";

runtime::Plan compile_graph(Graph graph, const compiler::Options& options) {
  backend::Registry none;
  device::Target target;
  target.name = "cpu-scalar";
  return compiler::compile(std::move(graph), target, options, none);
}

runtime::Plan compile_text(const char* text, const compiler::Options& options) {
  return compile_graph(parse_graph(text), options);
}

}  // namespace

TEST_CASE("shape arithmetic is gone, values stay, the symbol may be fixed") {
  compiler::Options options;
  options.verify_each = true;
  runtime::Plan plan = compile_text(kModel, options);
  for (NodeId id : plan.graph.order()) CHECK_FALSE(plan.graph[id].is("shape_of"));
  CHECK(plan.choices.size() == plan.graph.node_count());
  options.shapes["x"] = passes::parse_shape("2x3x8x8");
  runtime::Plan fixed = compile_text(kModel, options);
  CHECK(fixed.graph.type(fixed.graph.outputs[0]).str() == "f32[2,128]");
  std::vector<HostValue> in{Tensor::full(DType::f32, {2, 3, 8, 8}, 0.5)};
  auto want = interp::run(parse_graph(kModel), in).outputs[0].tensor;
  CHECK(interp::run(plan.graph, in).outputs[0].tensor.same_bytes(want));
  CHECK(interp::run(fixed.graph, in).outputs[0].tensor.same_bytes(want));
  CHECK(plan.graph.output_name(0) == "y");
}

TEST_CASE("passes are switched off and printed by name; unknown names list the known") {
  compiler::Options options;
  options.disabled = {"fold"};
  std::string printed;
  options.print_after = {"simplify"};
  options.print = [&](std::string_view pass, const std::string& text) { printed += cat(pass, "\n", text); };
  runtime::Plan plan = compile_text(kModel, options);
  bool shape = false;
  for (NodeId id : plan.graph.order()) shape |= plan.graph[id].is("shape_of");
  CHECK(shape);
  CHECK(printed.find("graph \"m\"") != printed.npos);
  options.disabled = {"fusoin"};
  CHECK_THROWS_WITH_AS(compile_text(kModel, options), doctest::Contains("the passes are specialise, absorb"),
                       Error);
}

TEST_CASE("shapes that contradict the model are refused by name") {
  compiler::Options options;
  options.shapes["x"] = passes::parse_shape("1x4x8x8");
  CHECK_THROWS_WITH_AS(compile_text(kModel, options), doctest::Contains("axis 1 of input 'x' is fixed at 3"),
                       Error);
  options.shapes = {{"q", passes::parse_shape("1")}};
  CHECK_THROWS_WITH_AS(compile_text(kModel, options), doctest::Contains("its inputs are 'x'"), Error);
  CHECK_THROWS_AS(passes::parse_shape("1xx2"), Error);
  CHECK_THROWS_AS(passes::parse_shape("4:2:8"), Error);
  CHECK(passes::parse_shape("1:8:32x3")[0].opt == 8);
}

TEST_CASE("the same input compiles to the same graph") {
  CHECK(print(compile_text(kModel, {}).graph) == print(compile_text(kModel, {}).graph));
}

TEST_CASE("new values are taken for weights alone: nothing that sizes or other constants were made of") {
  const runtime::Plan plan = compile_text(R"(graph "m"(%x: f32[N,4], %j: i64[1]) {
  symbol N in [1, 8]
  %b = constant() {value = tensor<f32[4]>{1, 2, 3, 4}} : f32[4]
  %w = constant() {value = tensor<f32[4]>{5, 6, 7, 8}} : f32[4]
  %h = mul(%w, %w) : f32[4]
  %k = constant() {value = tensor<i64[1]>{4}} : i64[1]
  %s = shape_of(%x) : i64[2]
  %n = slice(%s) {axes = [0], starts = dims[0], sizes = dims[1], steps = [1]} : i64[1]
  %t = concat(%n, %k) {axis = 0} : i64[2]
  %r = dynamic_reshape(%x, %t) : f32[N,4]
  %p = add(%r, %b) : f32[N,4]
  %q = add(%p, %h) : f32[N,4]
  %z = add(%q, %w) : f32[N,4]
  %m = mul(%j, %k) : i64[1]
  return %z, %t, %m
})",
                                          {});
  const Tensor four = Tensor::from<float>({4}, {9, 8, 7, 6});
  const auto refitted = runtime::refit(plan, {{"b", four}});
  const std::vector<HostValue> in{Tensor::full(DType::f32, {1, 4}, 0.5), Tensor::full(DType::i64, {1}, 2)};
  CHECK(to_doubles(interp::run(refitted->graph, in).outputs[0].tensor) ==
        std::vector<double>{39.5, 50.5, 63.5, 78.5});
  for (const char* name : {"w", "h", "k"})
    test::expect_error(ErrorCode::bad_name, {"no weight", name, "folded it"}, [&] {
      runtime::refit(plan, {{name, four}});
    });
}

TEST_CASE("a weight that a branch holds a copy of takes no new values") {
  Graph g("m");
  Builder b(g);
  const ValueId x = g.add_input(Type::tensor(DType::f32, {2}), "x");
  const ValueId w = b.constant(Tensor::from<float>({2}, {1, 2}));
  const ValueId v = b.constant(Tensor::from<float>({2}, {3, 4}));
  g.edit(w).name = "w";
  g.edit(v).name = "v";
  GraphPtr branches[2];
  for (GraphPtr& branch : branches) {
    auto body = std::make_shared<Graph>("branch");
    body->symbols = g.symbols;
    Builder inner(*body);
    const ValueId y = body->add_input(Type::tensor(DType::f32, {2}), "y");
    body->add_output(&branch == branches ? inner.add(y, inner.constant(*g.constant(w))) : y);
    branch = body;
  }
  const ValueId c = g.add_input(Type::tensor(DType::boolean, {}), "c");
  g.add_output(b.ops("if", {c, b.mul(b.mul(x, w), v)}, {{"then", branches[0]}, {"else", branches[1]}}, 1)[0]);
  const runtime::Plan plan = compile_graph(std::move(g), {});
  const Tensor two = Tensor::from<float>({2}, {5, 6});
  CHECK_NOTHROW(runtime::refit(plan, {{"v", two}}));
  test::expect_error(ErrorCode::bad_name, {"no weight 'w'"}, [&] { runtime::refit(plan, {{"w", two}}); });
}
