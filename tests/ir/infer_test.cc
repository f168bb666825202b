// SPDX-License-Identifier: Apache-2.0
#include "ir/infer.h"

#include <doctest/doctest.h>

#include "ir/builder.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::ir;

namespace {

// The graph with all types inferred anew, twice: the second time must change nothing.
Graph inferred(const char* text) {
  Graph g = parse_graph(text);
  infer_all(g);
  const std::string once = print(g);
  infer_all(g);
  CHECK(print(g) == once);
  verify(g);
  return g;
}

const Dim& size(const Graph& g, size_t output, size_t axis) {
  return g.type(g.outputs[output]).shape[axis];
}

}  // namespace

// The run binds a symbol to the size it sees; an expression of symbols that nothing defines would stay open.
TEST_CASE("a size that a body alone knows is one symbol of the result") {
  Graph scan = inferred(R"(graph "g"(%s: f32[M], %x: f32[K,N]) {
    symbol M in [1, 9]
    symbol K in [1, 9]
    symbol N in [1, 9]
    symbol u0 in [0, 9]
    symbol u1 in [0, 9]
    symbol u2 in [0, 9]
    %0, %1 = scan(%s, %x) {axes = [0], body = graph "b"(%sum: f32[u0], %next: f32[N]) {
        %2 = add(%sum, %next) : f32[broadcast(N, u0)]
        return %2, %2
      }, carried = 1, out_axes = [0], out_reverse = [0], reverse = [0], scanned = 1} : f32[u1], f32[K,u2]
    return %0, %1
  })");
  CHECK(size(scan, 0, 0).as_symbol());
  CHECK(size(scan, 1, 0) == Dim::symbol("K"));
  CHECK(size(scan, 1, 1).as_symbol());

  Graph fft = inferred(R"(graph "g"(%x: f32[2,8,1], %n: i64[]) {
    symbol u0 in [1, 100]
    %0 = fft(%x, %n) {axis = 1, onesided = true} : f32[2,u0,2]
    return %0
  })");
  CHECK(size(fft, 0, 1).as_symbol());
}

TEST_CASE("branches of other sizes yield one symbol that stays") {
  Graph g = inferred(R"(graph "g"(%c: bool[], %x: f32[2], %y: f32[3]) {
    symbol u0 in [2, 3]
    %0 = if(%c, %x, %y) {then = graph "t"(%a: f32[2], %b: f32[3]) {
        return %a
      }, else = graph "e"(%a: f32[2], %b: f32[3]) {
        return %b
      }} : f32[u0]
    return %0
  })");
  CHECK(size(g, 0, 0) == Dim::symbol("u0"));
}

// In the first round the carried value has one element, and so has the range inside the body.
TEST_CASE("what a body knew of a smaller input does not outlive it") {
  Graph g = inferred(R"(graph "g"(%n: i64[], %x: f32[1]) {
    symbol u0 in [0, 100]
    symbol u1 in [0, 100]
    %go = constant() {value = tensor<bool[]>{true}} : bool[]
    %0 = loop(%n, %go, %x) {body = graph "b"(%i: i64[], %c: bool[], %v: f32[1]) {
        %shape = shape_of(%v) : i64[1]
        %wide = cast(%shape) {to = f32} : f32[1]
        %back = cast(%wide) {to = i64} : i64[1]
        %zero = constant() {value = tensor<f32[]>{0}} : f32[]
        %fill = dynamic_fill(%zero, %back) : f32[1]
        %more = concat(%v, %fill) {axis = 0} : f32[2]
        return %c, %more
      }, carried = 1} : f32[u0]
    return %0
  })");
  const Graph* body = nullptr;
  for (NodeId id : g.order())
    if (g[id].is("loop")) body = &g[id].get_graph("body");
  REQUIRE(body);
  for (NodeId id : body->order())
    if ((*body)[id].is("dynamic_fill")) CHECK(!body->type((*body)[id].outputs[0]).shape[0].is_const());
}

TEST_CASE("only the identity is left out of a graph that is built") {
  Graph g;
  const ValueId x = g.add_input(Type::tensor(DType::f32, {2, 2}));
  Builder b(g);
  CHECK(b.transpose(x, {0, 1}) == x);
  CHECK(b.transpose(x, {1, 0}) != x);
  test::expect_error(ErrorCode::bad_shape, {"C1", "perm [0,0] is not a permutation"}, [&] {
    b.transpose(x, {0, 0});
  });
  test::expect_error(ErrorCode::bad_shape, {"perm [0] does not fit rank 2"}, [&] { b.transpose(x, {0}); });
  const ValueId one = b.scalar(DType::f32, 1);
  test::expect_error(ErrorCode::bad_shape, {"yields a negative size", "f32[2,-1]"}, [&] {
    b.op("fill", {one}, {{"dims", Shape{2, Dim(-1)}}});
  });
}

TEST_CASE("a step without an absolute value leaves the size to the run, a count without end is refused") {
  // Of the three elements such a step takes the one it starts at.
  Graph slice = inferred(R"(graph "g"(%x: f32[3]) {
    symbol u0 in [0, 3]
    %start = constant() {value = tensor<i64[1]>{2}} : i64[1]
    %end = constant() {value = tensor<i64[1]>{-9}} : i64[1]
    %axis = constant() {value = tensor<i64[1]>{0}} : i64[1]
    %step = constant() {value = tensor<i64[1]>{-9223372036854775808}} : i64[1]
    %y = dynamic_slice(%x, %start, %end, %axis, %step) : f32[u0]
    return %y
  })");
  CHECK_FALSE(size(slice, 0, 0).is_const());
  for (const char* limit : {"1e+30", "inf"})
    test::expect_error(ErrorCode::usage, {"range", "cannot count from 0 to"}, [&] {
      parse_graph(cat(R"(graph "g"() {
        %a = constant() {value = tensor<f32[]>{0}} : f32[]
        %b = constant() {value = tensor<f32[]>{)",
                      limit, R"(}} : f32[]
        %d = constant() {value = tensor<f32[]>{1}} : f32[]
        symbol K in [0, 9]
        %y = range(%a, %b, %d) : f32[K]
        return %y
      })"));
    });
}
