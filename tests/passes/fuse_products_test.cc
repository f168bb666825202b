// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse_products.h"

#include <doctest/doctest.h>

#include "passes/after.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::test;

namespace {

std::string ops_after(const std::string& text, std::function<bool(const Graph&, NodeId)> takes = anything) {
  return after(text, passes::fuse_products, std::move(takes));
}
bool nothing(const Graph&, NodeId) {
  return false;
}

// The gradients of a layer's weights and bias; what the sum reads is a reshape of its own, in front of the
// product's.
constexpr const char* kLayer = R"(graph "g"(%x: bf16[6,4], %g: bf16[2,3,5]) {
  %r = reshape(%g) {dims = dims[6,5]} : bf16[6,5]
  %w = cast(%r) {to = f32} : f32[6,5]
  %db = reduce_sum(%w) {axes = [AXIS]} : f32[N]
  %q = reshape(%g) {dims = dims[6,5]} : bf16[6,5]
  %dw = matmul(%x, %q) {transpose_a = true} : bf16[4,5]
  %n = neg(%q) : bf16[6,5]
  return %db, %dw, %n
})";
std::string layer(int axis) {
  std::string text = kLayer;
  text.replace(text.find("AXIS"), 4, cat(axis));
  return text.replace(text.find('N'), 1, axis == 0 ? "5" : "6");
}

constexpr const char* kRelu = R"(graph "g"(%g: f32[6,5], %w: f32[5,4], %y: f32[6,4], %b: f32[4]) {
  %d = matmul(%g, %w) : f32[6,4]
  %0 = constant() {value = tensor<f32[]>{0}} : f32[]
  %p = gt(OPERAND, %0) : MASK
  %r = select(%p, %d, %0) : f32[6,4]
  return %r, OUTPUT
})";
std::string relu(const char* operand, const char* output, const char* mask = "bool[6,4]") {
  std::string text = kRelu;
  text.replace(text.find("MASK"), 4, mask);
  text.replace(text.find("OPERAND"), 7, operand);
  return text.replace(text.find("OUTPUT"), 6, output);
}

}  // namespace

TEST_CASE("fuse_products: a bias's gradient joins that of the weights, which reads what the sum reads") {
  CHECK(ops_after(layer(0)) == "reshape fused reshape neg");
  CHECK(ops_after(layer(1)) == "reshape cast reduce_sum reshape matmul neg");
  CHECK(ops_after(layer(0), nothing) == "reshape cast reduce_sum reshape matmul neg");
}

TEST_CASE("fuse_products: weights that lie transposed sum up the left operand, by a cast of its own") {
  CHECK(ops_after(R"(graph "g"(%x: bf16[6,4], %g: bf16[6,5]) {
    %w = cast(%g) {to = f32} : f32[6,5]
    %dw = matmul(%g, %x) {transpose_a = true} : bf16[5,4]
    %db = reduce_sum(%w) {axes = [0]} : f32[5]
    %n = neg(%w) : f32[6,5]
    return %db, %dw, %n
  })") == "cast fused neg");
}

TEST_CASE("fuse_products: an operand that is not summed over stays alone") {
  // k is the second axis of the left operand: its sum over rows is none of the product's.
  CHECK(ops_after(R"(graph "g"(%g: f32[6,5], %w: f32[5,4]) {
    %d = matmul(%g, %w) : f32[6,4]
    %s = reduce_sum(%g) {axes = [0]} : f32[5]
    return %d, %s
  })") == "matmul reduce_sum");
}

TEST_CASE("fuse_products: what nothing reads is left to the removal of dead nodes") {
  const auto with_results = [](const char* results) {
    return ops_after(cat(R"(graph "g"(%x: f32[6,4], %g: f32[6,5]) {
    %dw = matmul(%g, %x) {transpose_a = true} : f32[5,4]
    %db = reduce_sum(%g) {axes = [0]} : f32[5]
    %n = neg(%x) : f32[6,4]
    return )",
                         results, "\n  }"));
  };
  CHECK(with_results("%n") == "matmul reduce_sum neg");
  CHECK(with_results("%n, %db") == "matmul reduce_sum neg");
  CHECK(with_results("%n, %dw") == "matmul reduce_sum neg");
  CHECK(with_results("%n, %dw, %db") == "fused neg");
}

TEST_CASE("fuse_products: the gradient of an activation joins the gradient of data") {
  CHECK(ops_after(relu("%y", "%g")) == "fused");
  CHECK(ops_after(relu("%y", "%g"), nothing) == "matmul gt select");
  // Its operand has other sizes, the product or the mask is wanted by others.
  CHECK(ops_after(relu("%b", "%g", "bool[4]")) == "matmul gt select");
  CHECK(ops_after(relu("%y", "%d")) == "matmul gt select");
  CHECK(ops_after(relu("%y", "%p")) == "matmul gt select");
}

TEST_CASE("fuse_products: what the target is asked about is what it gets") {
  std::string asked, got;
  auto text_of = [](const Graph& g, NodeId id) {
    std::string out = g[id].get_text("kind");
    for (ValueId v : g[id].inputs) append(out, cat(" ", name(g.type(v).dtype), g.type(v).shape));
    append(out, " ->");
    for (ValueId v : g[id].outputs) append(out, cat(" ", name(g.type(v).dtype), g.type(v).shape));
    return out;
  };
  Graph g = parse_graph(layer(0));
  const Oracle oracle([&](const Graph& trial, NodeId id) {
    asked = text_of(trial, id);
    return true;
  });
  passes::Context context;
  context.target = device::cuda_target(90);
  context.oracle = &oracle;
  CHECK(passes::fuse_products(g, context));
  for (NodeId id : g.order())
    if (g[id].is("fused")) got = text_of(g, id);
  CHECK(asked == got);
  CHECK(got == "product_gradient bf16[6,5] bf16[6,4] -> f32[5] bf16[4,5]");
}
