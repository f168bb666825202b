// SPDX-License-Identifier: Apache-2.0
// Loops on the device whose bodies yield what they were given: as the condition, as carried values, as rows;
// trip counts of either type; bodies that are wrong at the sizes of a run.
#include <doctest/doctest.h>

#include "backend/cuda/harness.h"
#include "base/cat.h"
#include "ir/text.h"
#include "support/expect_error.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::test;

namespace {

Tensor number(DType type, int64_t value) {
  Tensor t(type, {});
  t.set_int(0, value);
  return t;
}

// A loop over one carried f32[6], `body` yielding %c and %t.
std::string counted(DType trip, const std::string& body) {
  return cat("graph \"g\"(%n: ", name(trip),
             "[], %0: f32[6], %k: f32[6]) {\n  %r = loop(%n, _, %0, %k) {body = graph \"body\"(%i: i64[], ",
             "%c: bool[], %s: f32[6], %k: f32[6]) {\n", body,
             "    return %c, %t\n  }, carried = 1} : f32[6]\n  return %r\n}");
}

// Whether to go on is what the iteration before found.
const char* kLate = R"(graph "g"(%n: i64[], %g: bool[], %0: f32[4]) {
  %r, %s = loop(%n, _, %g, %0) {body = graph "body"(%i: i64[], %c: bool[], %go: bool[], %x: f32[4]) {
    %k = constant() {value = tensor<i64[]>{3}} : i64[]
    %t = lt(%i, %k) : bool[]
    %y = add(%x, %x) : f32[4]
    return %go, %t, %y
  }, carried = 2} : bool[], f32[4]
  return %r, %s
})";
// The same by a view of what is carried.
const char* kLateView = R"(graph "g"(%n: i64[], %g: bool[1], %0: f32[4]) {
  %r, %s = loop(%n, _, %g, %0) {body = graph "body"(%i: i64[], %c: bool[], %go: bool[1], %x: f32[4]) {
    %k = constant() {value = tensor<i64[1]>{3}} : i64[1]
    %t = lt(%i, %k) : bool[1]
    %y = add(%x, %x) : f32[4]
    %v = reshape(%go) {dims = dims[]} : bool[]
    return %v, %t, %y
  }, carried = 2} : bool[1], f32[4]
  return %r, %s
})";
// Two pairs swapped and nothing computed; the count is handed on, and every kind of value stacked.
const char* kGiven = R"(graph "g"(%m: i64[], %0: f32[5], %1: f32[5], %2: f16[3], %3: f16[3], %k: f32[5]) {
  %n = constant() {value = tensor<i64[]>{4}} : i64[]
  %last, %a, %b, %c, %d, %i, %p, %q, %r, %e = loop(%n, _, %m, %0, %1, %2, %3, %k) {body = graph "body"(%i: i64[], %g: bool[], %m: i64[], %a: f32[5], %b: f32[5], %c: f16[3], %d: f16[3], %k: f32[5]) {
    %o = constant() {value = tensor<f32[2]>{1, 2}} : f32[2]
    %z = constant() {value = tensor<f32[0]>{}} : f32[0]
    return %g, %i, %b, %a, %d, %c, %m, %a, %k, %o, %z
  }, carried = 5} : i64[], f32[5], f32[5], f16[3], f16[3], i64[4], f32[4,5], f32[4,5], f32[4,2], f32[4,0]
  return %last, %a, %b, %c, %d, %i, %p, %q, %r, %e
})";
// One value in two places.
const char* kTwice = R"(graph "g"(%n: i64[], %0: f32[5], %1: f32[5]) {
  %a, %b = loop(%n, _, %0, %1) {body = graph "body"(%i: i64[], %g: bool[], %a: f32[5], %b: f32[5]) {
    %s = add(%a, %b) : f32[5]
    return %g, %s, %s
  }, carried = 2} : f32[5], f32[5]
  return %a, %b
})";
// The inner loop runs as often as the outer one has run, and ends early at last.
const char* kNested = R"(graph "g"(%0: f32[N], %k: f32[N]) {
  symbol N in [1, 9]
  %n = constant() {value = tensor<i64[]>{6}} : i64[]
  %r, %rows = loop(%n, _, %0, %k) {body = graph "outer"(%i: i64[], %c: bool[], %s: f32[N], %k: f32[N]) {
    %t = loop(%i, %c, %s, %k) {body = graph "inner"(%j: i64[], %d: bool[], %u: f32[N], %k: f32[N]) {
      %v = add(%u, %k) : f32[N]
      %m = constant() {value = tensor<i64[]>{3}} : i64[]
      %go = lt(%j, %m) : bool[]
      return %go, %v
    }, carried = 1} : f32[N]
    return %c, %t, %s
  }, carried = 1} : f32[N], f32[6,N]
  return %r, %rows
})";
const char* kLayer = R"(graph "g"(%n: i64[], %x: f32[3,2,8], %w: f32[1,32,8], %r: f32[1,32,8]) {
  %y = loop(%n, _, %x, %w, %r) {body = graph "body"(%i: i64[], %c: bool[], %x: f32[3,2,8], %w: f32[1,32,8], %r: f32[1,32,8]) {
    %y, %h, %d = lstm(%x, %w, %r) {hidden = 8} : f32[3,1,2,8], f32[1,2,8], f32[1,2,8]
    %z = reshape(%y) {dims = dims[3, 2, 8]} : f32[3,2,8]
    return %c, %z
  }, carried = 1} : f32[3,2,8]
  return %y
})";
// Reads four of N.
const char* kReachesOut = R"(graph "g"(%n: i64[], %0: f32[N]) {
  symbol N in [1, 9]
  %r = loop(%n, _, %0) {body = graph "body"(%i: i64[], %c: bool[], %s: f32[N]) {
    %g = slice(%s) {axes = [0], starts = dims[0], sizes = dims[4], steps = [1]} : f32[4]
    %m = reduce_sum(%g) {axes = [0]} : f32[]
    %t = add(%s, %m) : f32[N]
    return %c, %t
  }, carried = 1} : f32[N]
  return %r
})";

}  // namespace

TEST_CASE("loops: a body that is wrong at the sizes of a run is an error of that run") {
  // No iteration, so that the reference has nothing to say.
  const GpuCase small(kReachesOut, {number(DType::i64, 0), random(DType::f32, {3}, 1)});
  CHECK(small.refusal("cuda.loop") == "");
  expect_error(ErrorCode::bad_shape, {"slice", "leaves axis 0", "[3]"}, [&] {
    cuda_registry().find("cuda.loop")->prepare(small.instance(), device::cuda_target(90));
  });
}

TEST_CASE("loops and scans: elements of less than a byte stay on the host") {
  auto refusal = [](const char* implementation, const std::string& text) {
    const ir::Graph graph = ir::parse_graph(text);
    return cuda_registry().find(implementation)->refuse(graph, graph.order().back(), device::cuda_target(90));
  };
  CHECK(refusal("cuda.loop", R"(graph "g"(%0: i4[3]) {
    %n = constant() {value = tensor<i64[]>{5}} : i64[]
    %r, %rows = loop(%n, _, %0) {body = graph "body"(%i: i64[], %c: bool[], %s: i4[3]) {
      return %c, %s, %s
    }, carried = 1} : i4[3], i4[5,3]
    return %r, %rows
  })")
            .starts_with("takes i4["));
  CHECK(refusal("cuda.steps", R"(graph "g"(%0: f32[2], %x: i4[5,3]) {
    %s, %y = scan(%0, %x) {body = graph "step"(%s: f32[2], %x: i4[3]) {
      %t = add(%s, %s) : f32[2]
      return %t, %x
    }, carried = 1, scanned = 1} : f32[2], i4[5,3]
    return %s, %y
  })")
            .starts_with("takes i4["));
  // Made inside.
  CHECK(refusal("cuda.loop", counted(DType::i64, R"(    %h = cast(%s) {to = i4} : i4[6]
    %t = cast(%h) {to = f32} : f32[6]
)"))
            .find("i4[6]") != std::string::npos);
}

TEST_CASE("loops: what bodies were given, loops and recurrent layers in them are taken") {
  const Tensor n = number(DType::i64, 1), x = random(DType::f32, {5}, 1), h = random(DType::f16, {3}, 2);
  CHECK(GpuCase(kLate, {n, number(DType::boolean, 1), random(DType::f32, {4}, 1)}).refusal("cuda.loop") ==
        "");
  CHECK(GpuCase(kGiven, {n, x, x, h, h, x}).refusal("cuda.loop") == "");
  CHECK(GpuCase(kNested, {x, x}).refusal("cuda.loop") == "");
  CHECK(GpuCase(kLayer, {n, random(DType::f32, {3, 2, 8}, 1), random(DType::f32, {1, 32, 8}, 2),
                         random(DType::f32, {1, 32, 8}, 3)})
            .refusal("cuda.loop") == "");
}

TEST_CASE("loops on the device: whether to go on is a carried value, as the iteration was given it") {
  PELTON_NEEDS_GPU();
  for (int64_t n : {0, 1, 4, 5, 100})
    for (bool first : {true, false}) {
      CAPTURE(n);
      CAPTURE(first);
      const Tensor x = random(DType::f32, {4}, 1);
      GpuCase(kLate, {number(DType::i64, n), number(DType::boolean, first), x}).check("cuda.loop");
      Tensor go(DType::boolean, {1});
      go.set_int(0, first);
      GpuCase(kLateView, {number(DType::i64, n), go, x}).check("cuda.loop");
    }
}

TEST_CASE("loops on the device: trip counts of 32 and 64 bits, below 0, none") {
  PELTON_NEEDS_GPU();
  for (DType type : {DType::i32, DType::i64})
    for (int64_t n : {-1, -5, 0, 1, 3}) {
      CAPTURE(n);
      GpuCase(counted(type, "    %t = add(%s, %k) : f32[6]\n"),
              {number(type, n), random(DType::f32, {6}, 1), random(DType::f32, {6}, 2)})
          .check("cuda.loop");
    }
}

TEST_CASE("loops on the device: what bodies were given is handed on and stacked") {
  PELTON_NEEDS_GPU();
  GpuCase(kGiven, {number(DType::i64, 7), random(DType::f32, {5}, 1), random(DType::f32, {5}, 2),
                   random(DType::f16, {3}, 3), random(DType::f16, {3}, 4), random(DType::f32, {5}, 5)})
      .check("cuda.loop");
  for (int64_t n : {0, 1, 3})
    GpuCase(kTwice, {number(DType::i64, n), random(DType::f32, {5}, 1), random(DType::f32, {5}, 2)})
        .check("cuda.loop");
}

TEST_CASE("loops on the device: loops in loops, of sizes that a run brings, and recurrent layers") {
  PELTON_NEEDS_GPU();
  for (int64_t size : {1, 5})
    GpuCase(kNested, {random(DType::f32, {size}, 1), random(DType::f32, {size}, 2)}).check("cuda.loop");
  for (int64_t n : {0, 1, 3})
    GpuCase(kLayer,
            {number(DType::i64, n), random(DType::f32, {3, 2, 8}, 1),
             random(DType::f32, {1, 32, 8}, 2, -0.5, 0.5), random(DType::f32, {1, 32, 8}, 3, -0.5, 0.5)})
        .check("cuda.loop");
}

TEST_CASE("control flow on the device: what bodies hold is counted once") {
  PELTON_NEEDS_GPU();
  const std::string constant = R"(tensor<f32[6]>{1, 2, 3, 4, 5, 6})";
  const GpuCase loop(counted(DType::i64, cat("    %h = constant() {value = ", constant, R"(} : f32[6]
    %u = add(%s, %h) : f32[6]
    %t = mul(%u, %h) : f32[6]
)")),
                     {number(DType::i64, 1), random(DType::f32, {6}, 1), random(DType::f32, {6}, 2)});
  CHECK(loop.prepare("cuda.loop")->packed_bytes() == 24);
  const GpuCase branch(cat(R"(graph "g"(%0: bool[], %1: f32[6]) {
    %r = if(%0, %1) {then = graph "yes"(%x: f32[6]) {
      %h = constant() {value = )",
                           constant, R"(} : f32[6]
      %y = add(%x, %h) : f32[6]
      return %y
    }, else = graph "no"(%x: f32[6]) {
      return %x
    }} : f32[6]
    return %r
  })"),
                       {number(DType::boolean, 1), random(DType::f32, {6}, 1)});
  CHECK(branch.prepare("cuda.if")->packed_bytes() == 24);
}
