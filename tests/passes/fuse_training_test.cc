// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse_training.h"

#include <doctest/doctest.h>

#include "passes/after.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::test;

namespace {

std::string ops_after(const char* text, std::function<bool(const Graph&, NodeId)> takes = anything) {
  return after(text, passes::fuse_training, std::move(takes));
}
bool nothing(const Graph&, NodeId) {
  return false;
}

constexpr const char* kLoss = R"(graph "g"(%x: bf16[3,5], %l: i64[3], %g: f32[]) {
  %w = cast(%x) {to = f32} : f32[3,5]
  %y, %s = cross_entropy(%w, %l) {reduction = "sum"} : f32[], f32[3]
  %d = cross_entropy_backward(%g, %w, %l, %s) {reduction = "sum"} : f32[3,5]
  %dx = cast(%d) {to = bf16} : bf16[3,5]
  return %y, %dx
})";

// A norm, ReLU6, and both backwards.
constexpr const char* kNorm =
    R"(graph "g"(%x: f32[2,3,4,4], %g: f32[2,3,4,4], %s: f32[3], %b: f32[3], %m: f32[3],
    %v: f32[3]) {
  %0 = constant() {value = tensor<f32[]>{0}} : f32[]
  %6 = constant() {value = tensor<f32[]>{6}} : f32[]
  %y, %nm, %nv, %bm, %br = batch_norm_train(%x, %s, %b, %m, %v) : f32[2,3,4,4], f32[3], f32[3], f32[3], f32[3]
  %a = clamp(%y, %0, %6) : f32[2,3,4,4]
  %r = relu(%y) : f32[2,3,4,4]
  %ge = ge(%y, %0) : bool[2,3,4,4]
  %g1 = select(%ge, %g, %0) : f32[2,3,4,4]
  %le = le(%r, %6) : bool[2,3,4,4]
  %g2 = select(%le, %g1, %0) : f32[2,3,4,4]
  %dx, %ds, %db = batch_norm_backward(%g2, %x, %s, %bm, %br) : f32[2,3,4,4], f32[3], f32[3]
  return %a, %nm, %nv, %dx, %ds, %db
})";

constexpr const char* kReluNorm =
    R"(graph "g"(%x: f32[2,3,4,4], %g: f32[2,3,4,4], %q: f32[2,3,4,4], %s: f32[3],
    %b: f32[3], %m: f32[3], %v: f32[3]) {
  %0 = constant() {value = tensor<f32[]>{0}} : f32[]
  %y, %nm, %nv, %bm, %br = batch_norm_train(%x, %s, %b, %m, %v) : f32[2,3,4,4], f32[3], f32[3], f32[3], f32[3]
  %z = ADD
  %a = relu(%z) : f32[2,3,4,4]
  %gt = gt(%a, %0) : bool[2,3,4,4]
  %g1 = select(%gt, %g, %0) : f32[2,3,4,4]
  %dx, %ds, %db = batch_norm_backward(%g1, %x, %s, %bm, %br) : f32[2,3,4,4], f32[3], f32[3]
  return %a, %nm, %nv, %dx, %ds, %db
})";
std::string relu_norm(const char* add) {
  std::string text = kReluNorm;
  return text.replace(text.find("ADD"), 3, add);
}

}  // namespace

TEST_CASE("fuse_training: losses take the casts around them, each its own") {
  CHECK(ops_after(kLoss) == "fused fused");
  CHECK(ops_after(kLoss, nothing).find("fused") == std::string::npos);
}

TEST_CASE("fuse_training: gradients of weights leave in the type that is wanted") {
  CHECK(ops_after(R"(graph "g"(%g: bf16[1,2,3,3], %x: bf16[1,2,3,3]) {
    %d = conv_backward_weights(%g, %x) {kernel = [1,1]} : bf16[2,2,1,1]
    %y = cast(%d) {to = f32} : f32[2,2,1,1]
    return %y
  })") == "fused");
}

TEST_CASE(
    "fuse_training: a norm's gradient tests the norm's result again, and the norm keeps its activation") {
  CHECK(ops_after(kNorm) == "fused fused");
  // The target takes none: everything reads what it read before.
  CHECK(ops_after(kNorm, nothing) == "batch_norm_train clamp relu ge select le select batch_norm_backward");
  CHECK(ops_after(relu_norm("reshape(%y) {dims = dims[2,3,4,4]} : f32[2,3,4,4]").c_str()) ==
        "batch_norm_train reshape relu gt select batch_norm_backward");
}

TEST_CASE("fuse_training: a sum between norm and activation joins the norm and not its gradient") {
  CHECK(ops_after(relu_norm("add(%y, %q) : f32[2,3,4,4]").c_str()) == "fused gt select batch_norm_backward");
}

TEST_CASE("fuse_training: attention and its gradient take their views, which they share") {
  constexpr const char* kText = R"(graph "g"(%x: f32[1,3,16], %g: f32[1,3,8]) {
    %q0 = slice(%x) {axes = [2], starts = dims[0], sizes = dims[8], steps = [1]} : f32[1,3,8]
    %k0 = slice(%x) {axes = [2], starts = dims[8], sizes = dims[8], steps = [1]} : f32[1,3,8]
    %q1 = reshape(%q0) {dims = dims[1,3,2,4]} : f32[1,3,2,4]
    %k1 = reshape(%k0) {dims = dims[1,3,2,4]} : f32[1,3,2,4]
    %q = transpose(%q1) {perm = [0,2,1,3]} : f32[1,2,3,4]
    %k = transpose(%k1) {perm = [0,2,1,3]} : f32[1,2,3,4]
    %a, %s = attention(%q, %k, %k) : f32[1,2,3,4], f32[1,2,3]
    %b = transpose(%a) {perm = [0,2,1,3]} : f32[1,3,2,4]
    %y = reshape(%b) {dims = dims[1,3,8]} : f32[1,3,8]
    %z = neg(%y) : f32[1,3,8]
    %g1 = reshape(%g) {dims = dims[1,3,2,4]} : f32[1,3,2,4]
    %gh = transpose(%g1) {perm = [0,2,1,3]} : f32[1,2,3,4]
    %dq, %dk, %dv = attention_backward(%gh, %q, %k, %k, %a, %s) : f32[1,2,3,4], f32[1,2,3,4], f32[1,2,3,4]
    %dq1 = transpose(%dq) {perm = [0,2,1,3]} : f32[1,3,2,4]
    %dk1 = transpose(%dk) {perm = [0,2,1,3]} : f32[1,3,2,4]
    %dv1 = transpose(%dv) {perm = [0,2,1,3]} : f32[1,3,2,4]
    return %z, %dq1, %dk1, %dv1
  })";
  CHECK(ops_after(kText) == "fused neg fused");
  CHECK(ops_after(kText, nothing).find("fused") == std::string::npos);
}

TEST_CASE("fuse_training: a gradient of attention in front of the rows of its result reads the result") {
  CHECK(ops_after(R"(graph "g"(%q: f32[1,2,3,4], %g: f32[1,3,2,4]) {
    %a, %s = attention(%q, %q, %q) : f32[1,2,3,4], f32[1,2,3]
    %gh = transpose(%g) {perm = [0,2,1,3]} : f32[1,2,3,4]
    %dq, %dk, %dv = attention_backward(%gh, %q, %q, %q, %a, %s) : f32[1,2,3,4], f32[1,2,3,4], f32[1,2,3,4]
    %b = transpose(%a) {perm = [0,2,1,3]} : f32[1,3,2,4]
    %y = reshape(%b) {dims = dims[1,3,8]} : f32[1,3,8]
    return %y, %dq, %dk, %dv
  })") == "attention fused transpose reshape");
}

TEST_CASE("fuse_training: the gradient of a norm of rows takes the sum behind it") {
  CHECK(ops_after(
            R"(graph "g"(%g: f32[2,4], %x: f32[2,4], %m: f32[2,1], %r: f32[2,1], %s: f32[4], %o: f32[2,4]) {
    %d, %ds, %db = layer_norm_backward(%g, %x, %m, %r, %s) {axis = 1} : f32[2,4], f32[4], f32[4]
    %y = add(%o, %d) : f32[2,4]
    return %y, %ds, %db
  })") == "fused");
}
