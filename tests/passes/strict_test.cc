// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "ir/op.h"
#include "ir/text.h"
#include "passes/fusion.h"

using namespace pelton;
using namespace pelton::ir;

TEST_CASE("strict: no 16-bit value stays inside a group") {
  const char* text = R"(graph "m"(%x: bf16[4]) {
  %a = add(%x, %x) : bf16[4]
  %b = relu(%a) : bf16[4]
  %c = cast(%b) {to = f32} : f32[4]
  %y = add(%c, %c) : f32[4]
  return %y
})";
  const auto ops = [&](bool strict) {
    Graph g = parse_graph(text);
    passes::Context context;
    context.strict = strict;
    passes::fusion(g, context);
    std::string inside;  // of all groups
    for (NodeId id : g.order())
      if (g[id].is("fused")) {
        const Graph& body = g[id].get_graph("body");
        for (NodeId n : body.order()) append(inside, cat(body[n].op->name, " "));
      }
    return inside;
  };
  CHECK(ops(false) == "add relu cast add ");
  CHECK(ops(true) == "cast add ");
}
