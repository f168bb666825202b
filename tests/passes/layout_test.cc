// SPDX-License-Identifier: Apache-2.0
// Layouts of regions: each convolution as it is told, what follows it likewise, conversions where two meet.
#include "passes/layout.h"

#include <doctest/doctest.h>

#include "interp/interpreter.h"
#include "ir/keeps_bytes.h"
#include "ir/text.h"
#include "ir/verify.h"

using namespace pelton;
using namespace pelton::ir;

namespace {

class TakesAll final : public passes::KernelOracle {
 public:
  std::string refuse(const Graph&, NodeId) const override { return {}; }
  std::string choice(const Graph&, NodeId) const override { return "test"; }
};

constexpr const char* kThree = R"(graph "g"(%x: f32[1,8,4,4], %w: f32[8,8,3,3]) {
  %0 = conv(%x, %w, _) {groups = 1, low = dims[1,1], high = dims[1,1]} : f32[1,8,4,4]
  %1 = relu(%0) : f32[1,8,4,4]
  %2 = conv(%1, %w, _) {groups = 1, low = dims[1,1], high = dims[1,1]} : f32[1,8,4,4]
  %3 = relu(%2) : f32[1,8,4,4]
  %4 = conv(%3, %w, _) {groups = 1, low = dims[1,1], high = dims[1,1]} : f32[1,8,4,4]
  %5 = relu(%4) : f32[1,8,4,4]
  return %5
})";

const Layout kLast{Layout::Kind::channels_last, 0}, kBlocked{Layout::Kind::blocked, 8}, kPlain{};

// Ops in order with the layout of their result.
std::string assigned(const char* text, size_t anchors, const std::vector<Layout>& by_anchor) {
  Graph g = parse_graph(text), before = g;
  const TakesAll oracle;
  device::Target target;
  const passes::Context context{target, &oracle};
  CHECK(passes::count_layout_anchors(g, context) == anchors);
  passes::layout(g, context, kLast, by_anchor);
  CHECK_FALSE(passes::layout(g, context, kLast, by_anchor));
  verify(g, "layout");
  std::vector<HostValue> inputs;
  for (ValueId v : g.inputs) {
    Tensor t(DType::f32, *as_dims(g.type(v).shape));
    for (int64_t i = 0; i < t.count(); ++i) t.set_double(i, static_cast<double>(i * 7 % 13) / 8 - 0.7);
    inputs.emplace_back(std::move(t));
  }
  CHECK(interp::run(before, inputs).outputs[0].tensor.same_bytes(interp::run(g, inputs).outputs[0].tensor));
  std::string out;
  for (NodeId id : g.order())
    append(out, cat(out.empty() ? "" : " ", g[id].op->name, ":",
                    g.type(g[id].outputs[0]).layout.is_plain() ? std::string("plain")
                                                               : g.type(g[id].outputs[0]).layout.str(),
                    keeps_bytes(g, id) ? "=" : ""));
  return out;
}
std::string assigned(const std::vector<Layout>& by_anchor) {
  return assigned(kThree, 3, by_anchor);
}

}  // namespace

TEST_CASE("one layout for all is converted to and from once") {
  CHECK(assigned({}) ==
        "layout:nhwc conv:nhwc relu:nhwc conv:nhwc relu:nhwc conv:nhwc relu:nhwc layout:plain");
  CHECK(assigned({}) == assigned({kLast, kLast, kLast}));
}

TEST_CASE("regions of different layouts meet in one conversion each") {
  CHECK(assigned({kLast, kBlocked, kPlain}) ==
        "layout:nhwc conv:nhwc relu:nhwc layout:c8 conv:c8 relu:c8 layout:plain conv:plain relu:plain");
  CHECK(assigned({kPlain, kLast, kPlain}) ==
        "conv:plain relu:plain layout:nhwc conv:nhwc relu:nhwc layout:plain conv:plain relu:plain");
  CHECK(assigned({kPlain, kPlain, kPlain}) ==
        "conv:plain relu:plain conv:plain relu:plain conv:plain relu:plain");
}

TEST_CASE("transpositions around channels-last convolutions move nothing") {
  // A norm over the channels in between, a residual around it all.
  CHECK(assigned(R"(graph "g"(%x: f32[1,8,4,4], %w: f32[8,8,1,1], %s: f32[8,1,1]) {
  %0 = conv(%x, %w, _) {} : f32[1,8,4,4]
  %1 = transpose(%0) {perm = [0,2,3,1]} : f32[1,4,4,8]
  %2 = layer_norm(%1) {axis = 3, eps = 1e-5} : f32[1,4,4,8]
  %3 = transpose(%2) {perm = [0,3,1,2]} : f32[1,8,4,4]
  %4 = mul(%3, %s) : f32[1,8,4,4]
  %5 = add(%4, %0) : f32[1,8,4,4]
  %6 = conv(%5, %w, _) {} : f32[1,8,4,4]
  %7 = transpose(%6) {perm = [0,2,3,1]} : f32[1,4,4,8]
  return %7
})",
                 2, {}) ==
        "layout:nhwc conv:nhwc transpose:plain= layer_norm:plain transpose:nhwc= mul:nhwc add:nhwc conv:nhwc "
        "transpose:plain=");
}

TEST_CASE("images made of tokens and tokens made of images move nothing") {
  CHECK(assigned(R"(graph "g"(%x: f32[2,12,8], %w: f32[8,8,1,1]) {
  %0 = transpose(%x) {perm = [0,2,1]} : f32[2,8,12]
  %1 = reshape(%0) {dims = dims[2,8,3,4]} : f32[2,8,3,4]
  %2 = conv(%1, %w, _) {} : f32[2,8,3,4]
  %3 = reshape(%2) {dims = dims[2,8,12]} : f32[2,8,12]
  %4 = transpose(%3) {perm = [0,2,1]} : f32[2,12,8]
  return %4
})",
                 1, {}) == "transpose:nhwc= reshape:nhwc= conv:nhwc reshape:nhwc= transpose:plain=");
}

TEST_CASE("other permutations, and reshapes that mix channels and pixels, read plain data") {
  CHECK(assigned(R"(graph "g"(%x: f32[1,4,4,8], %w: f32[8,8,1,1]) {
  %0 = transpose(%x) {perm = [0,3,2,1]} : f32[1,8,4,4]
  %1 = conv(%0, %w, _) {} : f32[1,8,4,4]
  %2 = transpose(%1) {perm = [0,3,2,1]} : f32[1,4,4,8]
  %3 = reshape(%1) {dims = dims[1,16,8]} : f32[1,16,8]
  %4 = transpose(%3) {perm = [0,2,1]} : f32[1,8,16]
  return %2, %4
})",
                 1, {}) ==
        "transpose:plain layout:nhwc conv:nhwc layout:plain transpose:plain reshape:plain= transpose:plain");
}
