// SPDX-License-Identifier: Apache-2.0
// if, loop and scan on the device: outside of a recording and in one, against the interpreter.
#include <doctest/doctest.h>

#include "backend/cuda/harness.h"
#include "ir/text.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::test;

namespace {

Tensor one(bool value) {
  Tensor t(DType::boolean, {});
  t.set_int(0, value);
  return t;
}
Tensor count(int64_t value) {
  Tensor t(DType::i64, {});
  t.set_int(0, value);
  return t;
}

const char* kIf = R"(graph "g"(%0: bool[], %1: f32[300], %2: f32[300]) {
  %r, %s = if(%0, %1, %2) {then = graph "yes"(%x: f32[300], %y: f32[300]) {
    %a = neg(%x) : f32[300]
    %b = add(%a, %y) : f32[300]
    return %b, %x
  }, else = graph "no"(%x: f32[300], %y: f32[300]) {
    %c = constant() {value = tensor<f32[]>{0.5}} : f32[]
    %a = mul(%x, %c) : f32[300]
    return %y, %a
  }} : f32[300], f32[300]
  return %r, %s
})";
// Swaps its carried values, and yields one of them each time.
const char* kLoop = R"(graph "g"(%n: i64[], %g: bool[], %0: f32[40], %1: f32[40], %2: f32[40]) {
  %r, %s = loop(%n, %g, %0, %1, %2) {body = graph "body"(%i: i64[], %c: bool[], %s: f32[40], %t: f32[40], %k: f32[40]) {
    %a = add(%s, %k) : f32[40]
    %m = constant() {value = tensor<i64[]>{6}} : i64[]
    %go = lt(%i, %m) : bool[]
    return %go, %t, %a
  }, carried = 2} : f32[40], f32[40]
  return %r, %s
})";
const char* kStacked = R"(graph "g"(%0: f32[2,8], %w: f32[8,8]) {
  %n = constant() {value = tensor<i64[]>{5}} : i64[]
  %r, %rows = loop(%n, _, %0, %w) {body = graph "body"(%i: i64[], %c: bool[], %s: f32[2,8], %w: f32[8,8]) {
    %p = matmul(%s, %w) : f32[2,8]
    %t = tanh(%p) : f32[2,8]
    %f = cast(%i) {to = f32} : f32[]
    %u = add(%t, %f) : f32[2,8]
    return %c, %t, %u
  }, carried = 1} : f32[2,8], f32[5,2,8]
  return %r, %rows
})";
const char* kNested = R"(graph "g"(%n: i64[], %0: f32[64]) {
  %r = loop(%n, _, %0) {body = graph "body"(%i: i64[], %c: bool[], %s: f32[64]) {
    %two = constant() {value = tensor<i64[]>{2}} : i64[]
    %early = lt(%i, %two) : bool[]
    %t = if(%early, %s) {then = graph "yes"(%x: f32[64]) {
      %y = add(%x, %x) : f32[64]
      return %y
    }, else = graph "no"(%x: f32[64]) {
      %y = neg(%x) : f32[64]
      return %y
    }} : f32[64]
    return %c, %t
  }, carried = 1} : f32[64]
  return %r
})";

// A recurrence: forwards and backwards, rows and columns, on either axis.
const char* kScan = R"(graph "g"(%0: f32[3,8], %x: f32[5,3,4], %y: f32[3,5], %w: f32[4,8], %r: f32[8,8]) {
  %s, %a, %b = scan(%0, %x, %y, %w, %r) {body = graph "step"(%s: f32[3,8], %x: f32[3,4], %y: f32[3], %w: f32[4,8], %r: f32[8,8]) {
    %p = matmul(%x, %w) : f32[3,8]
    %q = matmul(%s, %r) : f32[3,8]
    %u = add(%p, %q) : f32[3,8]
    %t = tanh(%u) : f32[3,8]
    %m = reduce_sum(%t) {axes = [1]} : f32[3]
    %n = mul(%m, %y) : f32[3]
    return %t, %u, %n
  }, carried = 1, scanned = 2, axes = [0, 1], reverse = [1, 0], out_axes = [1, -1], out_reverse = [0, 1]}
    : f32[3,8], f32[3,5,8], f32[3,5]
  return %s, %a, %b
})";
// Swaps what it carries, and stacks what it was given.
const char* kSwap = R"(graph "g"(%0: f16[3], %1: f16[3], %x: f16[LENGTH,3]) {
  %s, %t, %a = scan(%0, %1, %x) {body = graph "step"(%s: f16[3], %t: f16[3], %x: f16[3]) {
    %u = add(%s, %x) : f16[3]
    return %t, %u, %s
  }, carried = 2, scanned = 1} : f16[3], f16[3], f16[LENGTH,3]
  return %s, %t, %a
})";

// A constant is made at the size of the run.
const char* kOpenLoop = R"(graph "g"(%n: i64[], %0: f32[N]) {
  symbol N in [1, 9]
  %r = loop(%n, _, %0) {body = graph "body"(%i: i64[], %c: bool[], %s: f32[N]) {
    %h = constant() {value = tensor<f32[]>{0.5}} : f32[]
    %f = fill(%h) {dims = dims[2*N]} : f32[2*N]
    %g = slice(%f) {axes = [0], starts = dims[N], sizes = dims[N], steps = [1]} : f32[N]
    %t = add(%s, %g) : f32[N]
    return %c, %t
  }, carried = 1} : f32[N]
  return %r
})";
const char* kOpenScan = R"(graph "g"(%0: f32[N,4], %x: f32[L,N,4]) {
  symbol N in [1, 9]
  symbol L in [0, 9]
  %s, %y = scan(%0, %x) {body = graph "step"(%s: f32[N,4], %x: f32[N,4]) {
    %u = add(%s, %x) : f32[N,4]
    %t = tanh(%u) : f32[N,4]
    return %t, %u
  }, carried = 1, scanned = 1, reverse = [1], out_axes = [1]} : f32[N,4], f32[N,L,4]
  return %s, %y
})";

GpuCase scan_case() {
  return GpuCase(
      kScan, {random(DType::f32, {3, 8}, 1), random(DType::f32, {5, 3, 4}, 2), random(DType::f32, {3, 5}, 3),
              random(DType::f32, {4, 8}, 4, -0.5, 0.5), random(DType::f32, {8, 8}, 5, -0.5, 0.5)});
}

}  // namespace

TEST_CASE("control flow of fixed sizes is taken, other sizes and bodies that the GPU lacks are not") {
  CHECK(GpuCase(kIf, {one(true), random(DType::f32, {300}, 1), random(DType::f32, {300}, 2)})
            .refusal("cuda.if") == "");
  const std::string open = R"(graph "g"(%n: i64[], %0: f32[N]) {
    symbol N in [1, 9]
    %r = loop(%n, _, %0) {body = graph "body"(%i: i64[], %c: bool[], %s: f32[N]) {
      %t = add(%s, %s) : f32[N]
      return %c, %t
    }, carried = 1} : f32[N]
    return %r
  })";
  CHECK(GpuCase(open, {count(2), random(DType::f32, {3}, 1)}).refusal("cuda.loop") == "");
  // How many rows there are is found by running.
  const std::string counted = R"(graph "g"(%n: i64[], %0: f32[2]) {
    %r, %rows = loop(%n, _, %0) {body = graph "body"(%i: i64[], %c: bool[], %s: f32[2]) {
      %t = add(%s, %s) : f32[2]
      return %c, %t, %t
    }, carried = 1} : f32[2], f32[M,2]
    return %r, %rows
  })";
  const ir::Graph graph = ir::parse_graph(counted);
  const std::string why =
      cuda_registry().find("cuda.loop")->refuse(graph, graph.order().front(), device::cuda_target(90));
  CHECK(why.starts_with("yields f32["));
}

TEST_CASE("control flow at sizes that a run brings is taken") {
  CHECK(GpuCase(kOpenLoop, {count(3), random(DType::f32, {5}, 1)}).refusal("cuda.loop") == "");
  CHECK(GpuCase(kOpenScan, {random(DType::f32, {5, 4}, 1), random(DType::f32, {7, 5, 4}, 2)})
            .refusal("cuda.steps") == "");
}

TEST_CASE("if on the device, either way") {
  PELTON_NEEDS_GPU();
  for (bool which : {true, false})
    GpuCase(kIf, {one(which), random(DType::f32, {300}, 1), random(DType::f32, {300}, 2)}).check("cuda.if");
}

TEST_CASE("loops on the device: counted, ended by the body, never begun, swapping what they carry") {
  PELTON_NEEDS_GPU();
  for (int64_t n : {0, 1, 4, 5, 100})
    for (bool go : {true, false}) {
      CAPTURE(n);
      CAPTURE(go);
      GpuCase(kLoop, {count(n), one(go), random(DType::f32, {40}, 1), random(DType::f32, {40}, 2),
                      random(DType::f32, {40}, 3)})
          .check("cuda.loop");
    }
}

TEST_CASE("loops and scans on the device: sizes that a run brings") {
  PELTON_NEEDS_GPU();
  for (int64_t n : {1, 5}) {
    GpuCase(kOpenLoop, {count(3), random(DType::f32, {n}, 1)}).check("cuda.loop");
    GpuCase(kOpenScan, {random(DType::f32, {n, 4}, 1), random(DType::f32, {n + 2, n, 4}, 2)})
        .check("cuda.steps");
  }
}

TEST_CASE("loops on the device: products inside, rows stacked by iteration, branches inside") {
  PELTON_NEEDS_GPU();
  Tensor w = random(DType::f32, {8, 8}, 2);
  GpuCase(std::string(kStacked), {random(DType::f32, {2, 8}, 1), w}).check("cuda.loop");
  for (int64_t n : {1, 3, 6}) GpuCase(kNested, {count(n), random(DType::f32, {64}, 1)}).check("cuda.loop");
}

TEST_CASE("scans: what is taken") {
  CHECK(GpuCase(kOpenLoop, {count(3), random(DType::f32, {5}, 1)}).refusal("cuda.loop") == "");
  CHECK(GpuCase(kOpenScan, {random(DType::f32, {5, 4}, 1), random(DType::f32, {7, 5, 4}, 2)})
            .refusal("cuda.steps") == "");
  CHECK(scan_case().refusal("cuda.steps") == "");
  const std::string open = R"(graph "g"(%0: f32[2], %x: f32[N,2]) {
    symbol N in [1, 9]
    %s = scan(%0, %x) {body = graph "step"(%s: f32[2], %x: f32[2]) {
      %u = add(%s, %x) : f32[2]
      return %u
    }, carried = 1, scanned = 1} : f32[2]
    return %s
  })";
  CHECK(GpuCase(open, {random(DType::f32, {2}, 1), random(DType::f32, {3, 2}, 2)}).refusal("cuda.steps") ==
        "");
}

TEST_CASE("scans on the device: along any axis, either way, swapping what they carry, of no steps") {
  PELTON_NEEDS_GPU();
  scan_case().check("cuda.steps");
  for (int64_t length : {0, 1, 2, 7}) {
    CAPTURE(length);
    std::string text = kSwap;
    for (size_t at; (at = text.find("LENGTH")) != text.npos;) text.replace(at, 6, std::to_string(length));
    GpuCase(text,
            {random(DType::f16, {3}, 1), random(DType::f16, {3}, 2), random(DType::f16, {length, 3}, 3)})
        .check("cuda.steps");
  }
}
