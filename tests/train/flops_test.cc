// SPDX-License-Identifier: Apache-2.0
// What the backward pass of every model computes against its forward pass, at its own default sizes.
#include <doctest/doctest.h>

#include "autodiff/autodiff.h"
#include "nn/model.h"
#include "train/evaluate.h"

using namespace pelton;

TEST_CASE("models: the backward pass costs at most four times the forward pass") {
  for (const nn::ModelDef& def : nn::models()) {
    CAPTURE(def.name);
    nn::BuiltModel m =
        nn::build_model(def, nn::ModelOptions(def, {}), 2, {.mode = nn::Mode::train, .draw = false});
    ir::Graph& g = m.graph;
    ir::Builder b(g);
    const ir::ValueId y = g.outputs[0];
    ir::Ints axes;
    for (int64_t d = 0; d < b.rank(y); ++d) axes.push_back(d);
    const ir::ValueId loss = b.reduce("reduce_sum", b.op("square", {y}), axes, false);
    std::vector<ir::ValueId> parameters;
    for (const ir::Slot& s : g.slots)
      if (s.kind == ir::SlotKind::parameter) parameters.push_back(s.old_value);
    REQUIRE(!parameters.empty());
    const double forward = train::step_flops(g);
    autodiff::gradient(g, loss, parameters);
    const double backward = train::step_flops(g) - forward;
    CAPTURE(forward);
    CAPTURE(backward);
    // Each product has two of its size behind it; a first layer's, whose data needs no gradient, one.
    CHECK(backward >= 1.2 * forward);
    CHECK(backward <= 4 * forward);
  }
}
