// SPDX-License-Identifier: Apache-2.0
// if and loop on the device: outside of a recording and in one, against the interpreter.
#include <doctest/doctest.h>

#include "backend/cuda/harness.h"
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
  CHECK(GpuCase(open, {count(2), random(DType::f32, {3}, 1)}).refusal("cuda.loop") == "takes f32[N]");
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

TEST_CASE("loops on the device: products inside, rows stacked by iteration, branches inside") {
  PELTON_NEEDS_GPU();
  Tensor w = random(DType::f32, {8, 8}, 2);
  GpuCase(std::string(kStacked), {random(DType::f32, {2, 8}, 1), w}).check("cuda.loop");
  for (int64_t n : {1, 3, 6}) GpuCase(kNested, {count(n), random(DType::f32, {64}, 1)}).check("cuda.loop");
}
