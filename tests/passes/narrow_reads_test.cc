// SPDX-License-Identifier: Apache-2.0
#include "passes/narrow_reads.h"

#include <doctest/doctest.h>

#include "ir/op.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/pass.h"

using namespace pelton;

namespace {

std::string after_pass(const char* text, bool lowered = true) {
  ir::Graph g = ir::parse_graph(text);
  passes::Context context;
  context.lowered = lowered;
  context.target = device::cuda_target(90);
  passes::narrow_reads(g, context);
  g.sort();
  ir::verify(g, "narrow_reads");
  std::string out;
  for (ir::NodeId id : g.order())
    append(out, cat(out.empty() ? "" : " ", g[id].op->name, ":", g.type(g[id].inputs[0]).str()));
  return out;
}

}  // namespace

TEST_CASE("narrow_reads: a sum reads the 16 bits that a product reads, in whatever order they stand") {
  const std::string got = after_pass(R"(graph "g"(%x: f32[2,3,4]) {
    %v = exp(%x) : f32[2,3,4]
    %r = reshape(%v) {dims = dims[6,4]} : f32[6,4]
    %s = reduce_sum(%r) {axes = [0]} : f32[4]
    %c = cast(%r) {to = bf16} : bf16[6,4]
    %n = neg(%c) : bf16[6,4]
    return %s, %n
  })");
  CHECK(got.find("reduce_sum:f32[6,4]") != std::string::npos);
  CHECK(got.find("cast:bf16[6,4]") != std::string::npos);
  // One narrow copy, made of the value itself.
  CHECK(got.find("cast:f32[2,3,4]") == got.rfind("cast:f32"));
}

TEST_CASE("narrow_reads: in a plan of f32 a sum does not read what was rounded for others") {
  CHECK(after_pass(R"(graph "g"(%x: f32[3,4]) {
    %v = exp(%x) : f32[3,4]
    %s = reduce_sum(%v) {axes = [0]} : f32[4]
    %c = cast(%v) {to = bf16} : bf16[3,4]
    return %s, %c
  })",
                   false) == "exp:f32[3,4] reduce_sum:f32[3,4] cast:f32[3,4]");
}

TEST_CASE("narrow_reads: the place of a maximum is sought in the value that was widened") {
  CHECK(after_pass(R"(graph "g"(%x: bf16[3,4]) {
    %w = cast(%x) {to = f32} : f32[3,4]
    %y = arg_max(%w) {axis = 1} : i64[3]
    return %y
  })") == "arg_max:bf16[3,4]");
  CHECK(after_pass(R"(graph "g"(%x: f32[3,4]) {
    %w = cast(%x) {to = bf16} : bf16[3,4]
    %y = arg_max(%w) {axis = 1} : i64[3]
    return %y
  })") == "cast:f32[3,4] arg_max:bf16[3,4]");
}

TEST_CASE("narrow_reads: a sum that alone reads a value reads all its bits") {
  CHECK(after_pass(R"(graph "g"(%x: f32[3,4]) {
    %y = reduce_sum(%x) {axes = [0]} : f32[4]
    return %y
  })") == "reduce_sum:f32[3,4]");
}
