// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse_blocks.h"
#include "passes/fusion.h"

#include <doctest/doctest.h>

#include "passes/after.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::test;

namespace {

constexpr const char* kExcitation = R"(graph "g"(%x: f32[1,4,3,3], %v: f32[2,4,1,1], %w: f32[4,2,1,1]) {
  %m = reduce_mean(%x) {axes = [2,3], keep_dims = true} : f32[1,4,1,1]
  %h = conv(%m, %v) : f32[1,2,1,1]
  %a = relu(%h) : f32[1,2,1,1]
  %s = conv(%a, %w) : f32[1,4,1,1]
  %g = sigmoid(%s) : f32[1,4,1,1]
  %y = mul(%g, %x) : f32[1,4,3,3]
  return %y
})";
// The block behind a depthwise convolution, its product read by a convolution of one place.
constexpr const char* kExcited =
    R"(graph "g"(%i: f32[1,4,5,5], %d: f32[4,1,3,3], %v: f32[2,4,1,1], %w: f32[4,2,1,1], %p: f32[3,4,1,1]) {
  %c = conv(%i, %d) {groups = 4} : f32[1,4,3,3]
  %x = silu(%c) : f32[1,4,3,3]
  %m = reduce_mean(%x) {axes = [2,3], keep_dims = true} : f32[1,4,1,1]
  %h = conv(%m, %v) : f32[1,2,1,1]
  %a = relu(%h) : f32[1,2,1,1]
  %s = conv(%a, %w) : f32[1,4,1,1]
  %g = sigmoid(%s) : f32[1,4,1,1]
  %y = mul(%g, %x) : f32[1,4,3,3]
  %z = conv(%y, %p) : f32[1,3,3,3]
  %r = relu(%z) : f32[1,3,3,3]
  return %r)";
// q, k and v are thirds of one transposed tensor.
constexpr const char* kAttention = R"(graph "g"(%x: f32[1,3,24]) {
  %r = reshape(%x) {dims = dims[1,3,3,2,4]} : f32[1,3,3,2,4]
  %t = transpose(%r) {perm = [2,0,3,1,4]} : f32[3,1,2,3,4]
  %q0 = slice(%t) {axes = [0], starts = dims[0], sizes = dims[1], steps = [1]} : f32[1,1,2,3,4]
  %k0 = slice(%t) {axes = [0], starts = dims[1], sizes = dims[1], steps = [1]} : f32[1,1,2,3,4]
  %v0 = slice(%t) {axes = [0], starts = dims[2], sizes = dims[1], steps = [1]} : f32[1,1,2,3,4]
  %q = reshape(%q0) {dims = dims[1,2,3,4]} : f32[1,2,3,4]
  %k = reshape(%k0) {dims = dims[1,2,3,4]} : f32[1,2,3,4]
  %v = reshape(%v0) {dims = dims[1,2,3,4]} : f32[1,2,3,4]
  %a = attention(%q, %k, %v) : f32[1,2,3,4]
  %b = transpose(%a) {perm = [0,2,1,3]} : f32[1,3,2,4]
  %y = reshape(%b) {dims = dims[1,3,8]} : f32[1,3,8]
  return )";

}  // namespace

TEST_CASE("fuse_blocks: squeeze and excite") {
  CHECK(after(kExcitation, passes::fuse_squeeze_excite, anything) == "fused");
  CHECK(after(kExcitation, passes::fuse_squeeze_excite, [](const Graph&, NodeId) { return false; }) ==
        "reduce_mean conv relu conv sigmoid mul");
  // The gate of another tensor is no such block.
  std::string other = kExcitation;
  other.replace(other.find("mul(%g, %x)"), 11, "mul(%g, %g)");
  other.replace(other.find("f32[1,4,3,3]\n  return"), 12, "f32[1,4,1,1]");
  CHECK(after(other, passes::fuse_squeeze_excite, anything) == "reduce_mean conv relu conv sigmoid mul");
}

TEST_CASE("fuse_blocks: factors of a depthwise convolution go to the product behind them") {
  const std::string text = kExcited;
  auto kinds = [](std::string_view without) {
    return [without](const Graph& g, NodeId id) {
      return g[id].is("fused") && g[id].get_text("kind") != without;
    };
  };
  CHECK(after(text + " }", passes::fuse_squeeze_excite, anything) == "fused mul conv relu");
  CHECK(after(text + " }", passes::fusion, anything) == "fused fused");
  // Where nothing takes the larger group, the block is one by itself, and so is the convolution.
  CHECK(after(text + " }", passes::fuse_squeeze_excite, kinds("excite")) == "conv silu fused conv relu");
  CHECK(after(text + " }", passes::fusion, kinds("excite")) == "fused fused fused");
  // The product is read by somebody else, too.
  CHECK(after(text + ", %y }", passes::fuse_squeeze_excite, anything) == "conv silu fused conv relu");
  // No gated product: the product stands alone, what follows the convolution joins it all the same.
  auto no_gates = [](const Graph& g, NodeId id) {
    if (!g[id].is("fused") || g[id].get_text("kind") != "conv") return true;
    const Graph& body = g[id].get_graph("body");
    return !body[body.order().front()].is("mul");
  };
  CHECK(after(text + " }", passes::fusion, no_gates) == "fused mul fused");
}

TEST_CASE("fuse_blocks: attention with its views") {
  const std::string text = kAttention;
  CHECK(after(text + "%y }", passes::fuse_attention_views, anything) == "fused");
  // What somebody else reads stays outside, with all that it needs.
  CHECK(after(text + "%y, %t }", passes::fuse_attention_views, anything) == "reshape transpose fused");
  CHECK(after(text + "%y, %k0 }", passes::fuse_attention_views, anything) == "reshape transpose slice fused");
  // A kernel that does not take the result's views.
  auto bare = [](const Graph& g, NodeId id) {
    const Graph& body = g[id].get_graph("body");
    return body[body[body.outputs[0]].producer].is("attention");
  };
  CHECK(after(text + "%y }", passes::fuse_attention_views, bare) == "fused transpose reshape");
  CHECK(after(text + "%y }", passes::fuse_attention_views, [](const Graph&, NodeId) { return false; }) ==
        "reshape transpose slice slice slice reshape reshape reshape attention transpose reshape");
}
