// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "ir/builder.h"
#include "ir/text.h"
#include "ir/verify.h"

using namespace pelton;
using namespace pelton::ir;

TEST_CASE("use lists follow every change") {
  Graph g;
  ValueId x = g.add_input(Type::tensor(DType::f32, {2}), "x");
  Builder b(g);
  ValueId n = b.op("neg", {x}), e = b.op("exp", {n});
  g.outputs = {e};
  CHECK(g[x].uses.size() == 1);
  g.replace_uses(n, x);
  CHECK(g[x].uses.size() == 2);
  CHECK(g.unused(n));
  g.remove(g[n].producer);
  CHECK(g[x].uses.size() == 1);
  verify(g);
  std::string before = print(g);
  g.compact();
  verify(g);
  CHECK(print(g) == before);
}

TEST_CASE("sort restores a topological order") {
  Graph g;
  ValueId x = g.add_input(Type::tensor(DType::f32, {2}), "x");
  Builder b(g);
  ValueId first = b.op("neg", {x}), second = b.op("exp", {x});
  g.outputs = {first, second};
  g.set_input(g[first].producer, 0, second);
  CHECK_THROWS_AS(verify(g), Error);
  g.sort();
  verify(g);
}

TEST_CASE("broadcasting: constants win, unknown pairs stay symbolic, contradictions are named") {
  Graph g;
  Dim n = Dim::symbol("N"), m = Dim::symbol("M");
  g.symbols->ranges = {{"N", {1, 64}}, {"M", {1, 64}}};
  ValueId a = g.add_input(Type::tensor(DType::f32, {n, 3}), "a"),
          c = g.add_input(Type::tensor(DType::f32, {m, 1}), "c"),
          d = g.add_input(Type::tensor(DType::f32, {4}), "d");
  Builder b(g);
  CHECK(g.type(b.add(a, c)).str() == "f32[broadcast(M, N),3]");
  b.set_name("bad");
  try {
    b.add(a, d);
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::bad_shape);
    CHECK(std::string(e.what()).find("cannot broadcast [N,3] with [4] (add 'bad', C3)") != std::string::npos);
  }
}

TEST_CASE("shape arithmetic keeps its symbolic contents") {
  Graph g;
  Dim n = Dim::symbol("N");
  g.symbols->ranges["N"] = {1, 64};
  ValueId x = g.add_input(Type::tensor(DType::f32, {n, 3, 4}), "x");
  Builder b(g);
  ValueId s = b.op("shape_of", {x});
  ValueId head =
      b.op("slice", {s}, {{"axes", Ints{0}}, {"starts", Shape{0}}, {"sizes", Shape{1}}, {"steps", Ints{1}}});
  ValueId joined = b.op("concat", {head, b.ints({12})}, {{"axis", int64_t{0}}});
  ValueId doubled = b.mul(joined, b.ints({2}));
  REQUIRE(g[doubled].contents);
  CHECK(*g[doubled].contents == Contents{2 * n, Dim(24)});
}

TEST_CASE("a must-alias that another reader breaks is refused") {
  Graph g;
  ValueId x = g.add_input(Type::tensor(DType::f32, {2}), "x");
  Builder b(g);
  ValueId y = b.op("neg", {x}), z = b.op("exp", {x});
  g.outputs = {y, z};
  g.aliases = {{0, 0, true}};
  CHECK_THROWS_WITH_AS(verify(g), doctest::Contains("may still read it"), Error);
  g.aliases[0].must = false;
  verify(g);
}

TEST_CASE("a size guarded against -1 stays known where the comparison is decided") {
  Graph g;
  Dim n = Dim::symbol("N");
  g.symbols->ranges["N"] = {1, 64};
  Builder b(g);
  ValueId sizes = b.op("contents", {}, {{"dims", Shape{n, -1, 4}}});
  ValueId guarded = b.select(b.op("eq", {sizes, b.ints({-1})}), b.ints({1}), sizes);
  REQUIRE(g[guarded].contents);
  CHECK(*g[guarded].contents == Contents{n, 1, 4});
  g.symbols->ranges["N"] = {-1, 64};
  ValueId open = b.select(b.op("eq", {sizes, b.ints({-1})}), b.ints({1}), sizes);
  CHECK_FALSE(g[open].contents);
}
