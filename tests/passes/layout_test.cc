// SPDX-License-Identifier: Apache-2.0
// Layouts of regions: each convolution as it is told, what follows it likewise, conversions where two meet.
#include "passes/layout.h"

#include <doctest/doctest.h>

#include "interp/interpreter.h"
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
std::string assigned(const std::vector<Layout>& by_anchor) {
  Graph g = parse_graph(kThree), before = g;
  const TakesAll oracle;
  device::Target target;
  const passes::Context context{target, &oracle};
  CHECK(passes::count_layout_anchors(g, context) == 3);
  passes::layout(g, context, kLast, by_anchor);
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
                                                               : g.type(g[id].outputs[0]).layout.str()));
  return out;
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
