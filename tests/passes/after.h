// SPDX-License-Identifier: Apache-2.0
// What passes that make groups do to a graph, on a target that takes the groups a test chooses.
#pragma once

#include <doctest/doctest.h>

#include <functional>

#include "interp/interpreter.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/pass.h"

namespace pelton::test {

using namespace ir;

// Takes groups that `takes` likes.
class Oracle final : public passes::KernelOracle {
 public:
  explicit Oracle(std::function<bool(const Graph&, NodeId)> takes) : takes_(std::move(takes)) {}
  std::string refuse(const Graph& g, NodeId id) const override { return takes_(g, id) ? "" : "no"; }
  std::string choice(const Graph&, NodeId) const override { return ""; }

 private:
  std::function<bool(const Graph&, NodeId)> takes_;
};
inline bool anything(const Graph&, NodeId) {
  return true;
}

using Pass = bool (*)(Graph&, const passes::Context&);

// Ops after the pass in order, constants aside; the values stay.
inline std::string after(const std::string& text, Pass pass,
                         std::function<bool(const Graph&, NodeId)> takes) {
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

}  // namespace pelton::test
