// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse_blocks.h"

#include <doctest/doctest.h>

#include <functional>

#include "interp/interpreter.h"
#include "ir/text.h"
#include "ir/verify.h"

using namespace pelton;
using namespace pelton::ir;

namespace {

// Takes groups that `takes` likes.
class Oracle final : public passes::KernelOracle {
 public:
  explicit Oracle(std::function<bool(const Graph&, NodeId)> takes) : takes_(std::move(takes)) {}
  std::string refuse(const Graph& g, NodeId id) const override { return takes_(g, id) ? "" : "no"; }
  std::string choice(const Graph&, NodeId) const override { return ""; }

 private:
  std::function<bool(const Graph&, NodeId)> takes_;
};
bool anything(const Graph&, NodeId) {
  return true;
}

using Pass = bool (*)(Graph&, const passes::Context&);

// Ops after the pass in order, constants aside; the values stay.
std::string after(const std::string& text, Pass pass, std::function<bool(const Graph&, NodeId)> takes) {
  Graph g = parse_graph(text), before = g;
  const Oracle oracle(std::move(takes));
  passes::Context context;
  context.target = device::cuda_target(90);
  context.oracle = &oracle;
  pass(g, context);
  g.sort();
  verify(g, "pass");
  std::vector<HostValue> inputs;
  for (ValueId v : g.inputs) {
    Tensor t(g.type(v).dtype, *as_dims(g.type(v).shape));
    for (int64_t i = 0; i < t.count(); ++i) t.set_double(i, static_cast<double>(i % 13) / 8 - 0.7);
    inputs.emplace_back(std::move(t));
  }
  const auto a = interp::run(before, inputs).outputs, b = interp::run(g, inputs).outputs;
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(a[i].tensor.same_bytes(b[i].tensor));
  std::string ops;
  for (NodeId id : g.order())
    if (!g[id].is("constant")) append(ops, cat(ops.empty() ? "" : " ", g[id].op->name));
  return ops;
}

constexpr const char* kExcitation = R"(graph "g"(%x: f32[1,4,3,3], %v: f32[2,4,1,1], %w: f32[4,2,1,1]) {
  %m = reduce_mean(%x) {axes = [2,3], keep_dims = true} : f32[1,4,1,1]
  %h = conv(%m, %v) : f32[1,2,1,1]
  %a = relu(%h) : f32[1,2,1,1]
  %s = conv(%a, %w) : f32[1,4,1,1]
  %g = sigmoid(%s) : f32[1,4,1,1]
  %y = mul(%g, %x) : f32[1,4,3,3]
  return %y
})";
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
