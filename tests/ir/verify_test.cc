// SPDX-License-Identifier: Apache-2.0
// Rules that types alone do not state: state slots, tokens, guards, sub-graphs.
#include "ir/verify.h"

#include <doctest/doctest.h>

#include "ir/builder.h"
#include "ir/text.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::ir;

namespace {

void refuse(const Graph& g, std::initializer_list<const char*> words) {
  test::expect_error(ErrorCode::internal, words, [&] { verify(g); });
}
Type f32(Shape shape) {
  return Type::tensor(DType::f32, std::move(shape));
}

}  // namespace

TEST_CASE("a slot's next value has the slot's type") {
  Graph g;
  ValueId w = g.add_slot(
      {.name = "w", .type = f32({2, 2}), .initial = {}, .old_value = {}, .next = {}, .tied_to = {}});
  Builder b(g);
  g.slots[0].next = b.op("neg", {w});
  verify(g);
  g.slots[0].next = b.reduce("reduce_sum", w, {0}, false);
  refuse(g, {"state slot 'w'", "f32[2,2]", "f32[2]"});
  g.slots[0].next = b.cast(w, DType::f16);
  refuse(g, {"next value is f16[2,2]"});
}

TEST_CASE("slots have names of their own, fitting initial values, and ties to earlier slots") {
  auto slot = [](std::string name, Type type, Tensor initial = {}, std::string tied = {}) {
    Slot s;
    s.name = std::move(name);
    s.type = std::move(type);
    s.initial = std::move(initial);
    s.tied_to = std::move(tied);
    return s;
  };
  Graph twice;
  twice.add_slot(slot("w", f32({2})));
  twice.add_slot(slot("w", f32({2})));
  refuse(twice, {"two state slots are named 'w'"});
  Graph start;
  start.add_slot(slot("w", f32({2}), Tensor::zeros(DType::f32, {3})));
  refuse(start, {"state slot 'w' of type f32[2] starts as f32[3]"});
  Graph tied;
  tied.add_slot(slot("head", f32({2}), {}, "embedding"));
  refuse(tied, {"tied to 'embedding', which is not declared before it"});
  Graph good;
  good.add_slot(slot("embedding", f32({2})));
  good.add_slot(slot("head", f32({2}), {}, "embedding"));
  verify(good);
  // Tied and state kinds survive the text.
  CHECK(parse_graph(print(good)).slots[1].tied_to == "embedding");
}

TEST_CASE("ordered ops are chained by tokens") {
  Graph g;
  ValueId x = g.add_input(f32({4}), "x");
  Builder b(g);
  auto first = b.ops("all_reduce", {x}, {}, 2);
  verify(g);  // one alone needs no order
  auto second = b.ops("all_reduce", {first[0]}, {}, 2);
  refuse(g, {"has effects but takes no token", "all_reduce"});
  g.add_node_input(g[second[0]].producer, first[1]);
  g.add_node_input(g[first[0]].producer, b.op("token", {}));
  g.sort();
  verify(g);
}

TEST_CASE("a token has one user, join merges several") {
  Graph g;
  ValueId x = g.add_input(f32({4}), "x");
  Builder b(g);
  ValueId t = b.op("token", {});
  b.ops("all_reduce", {x, t}, {}, 2);
  b.ops("all_reduce", {x, t}, {}, 2);
  refuse(g, {"token", "used twice"});
  Graph h;
  ValueId y = h.add_input(f32({4}), "y");
  Builder c(h);
  auto one = c.ops("all_reduce", {y, c.op("token", {})}, {}, 2);
  auto two = c.ops("all_reduce", {y, c.op("token", {})}, {}, 2);
  c.ops("broadcast_from", {y, c.op("join", {one[1], two[1]})}, {}, 2);
  verify(h);
}

TEST_CASE("guards and checks hold or not at given sizes, and survive the text") {
  Dim n = Dim::symbol("N"), m = Dim::symbol("M");
  using R = Fact::Relation;
  SymbolValues sizes{{"N", 8}, {"M", 4}};
  CHECK(Fact{R::equal, n, m * 2, "a"}.holds(sizes));
  CHECK(!Fact{R::not_equal, n, m * 2, "a"}.holds(sizes));
  CHECK(Fact{R::at_most, m, n, "a"}.holds(sizes));
  CHECK(!Fact{R::at_most, n, m, "a"}.holds(sizes));
  CHECK(Fact{R::divisible, n, m, "a"}.holds(sizes));
  CHECK(!Fact{R::divisible, n, 3, "a"}.holds(sizes));
  CHECK(!Fact{R::divisible, n, 0, "a"}.holds(sizes));
  CHECK(Fact{R::divisible, INT64_MIN, -1, "a"}.holds(sizes));  // a % b would end the process
  Graph g = parse_graph(R"(graph "g"(%x: f32[N,M]) {
    symbol M in [1, 64]
    symbol N in [1, 64]
    check N <= 2*M @"slice"
    guard N != 1 @"pass fusion"
    guard N % 8 == 0 @"pass layout"
    return %x
  })");
  REQUIRE(g.guards.size() == 2);
  CHECK(g.guards[1].str() == "N % 8 == 0");
  CHECK(print(parse_graph(print(g))) == print(g));
}

TEST_CASE("the rules hold inside sub-graphs") {
  Graph g = parse_graph(R"(graph "g"(%x: f32[2]) {
    %0 = fused(%x) {body = graph "body"(%a: f32[2]) {
      %1 = neg(%a) : f32[2]
      return %1
    }} : f32[2]
    return %0
  })");
  verify(g);
  auto body = std::make_shared<Graph>(g[g.order()[0]].get_graph("body"));
  body->edit(body->outputs[0]).type = f32({3});
  g.edit(g.order()[0]).attrs.find("body")->second = GraphPtr(body);
  refuse(g, {"recorded as f32[3] but inferred as f32[2]"});
}
