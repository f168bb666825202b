// SPDX-License-Identifier: Apache-2.0
// Nodes that are said to move no byte: as they lie in memory their results have the bytes of their operands.
#include "ir/keeps_bytes.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "ir/physical.h"
#include "ir/text.h"

using namespace pelton;
using namespace pelton::ir;

namespace {

const char* const kLayouts[] = {"", "{nhwc}", "{c8}"};

// Element i of the operand holds i; of the result, what the op makes of that.
Tensor result_of(const Graph& g, NodeId id, const Tensor& x) {
  Tensor y(DType::f32, *as_dims(g.type(g[id].outputs[0]).shape));
  const std::vector<int64_t> from = row_major_strides(x.dims()), to = row_major_strides(y.dims());
  for (int64_t i = 0; i < y.count(); ++i) {
    int64_t at = i;
    if (g[id].is("transpose")) {
      at = 0;
      for (size_t d = 0; d < to.size(); ++d)
        at += i / to[d] % y.dims()[d] * from[static_cast<size_t>(g[id].get_ints("perm")[d])];
    }
    y.set_double(i, x.get_double(at));
  }
  return y;
}

// Whether the node of the graph says so, checked on numbers that all differ.
bool said(const std::string& text) {
  const Graph g = parse_graph(text);
  const NodeId id = g.order()[0];
  const Type &x = g.type(g.inputs[0]), &y = g.type(g[id].outputs[0]);
  Tensor value(DType::f32, *as_dims(x.shape));
  for (int64_t i = 0; i < value.count(); ++i) value.set_double(i, static_cast<double>(i));
  const Tensor result = result_of(g, id, value);
  const Tensor before = to_physical(value, x.layout), after = to_physical(result, y.layout);
  const int64_t bytes = physical_bytes(x, value.dims());
  const bool same =
      bytes == physical_bytes(y, result.dims()) &&
      std::equal(static_cast<const char*>(before.data()), static_cast<const char*>(before.data()) + bytes,
                 static_cast<const char*>(after.data()));
  const bool says = keeps_bytes(g, id);
  CHECK_MESSAGE((!says || same), text);
  return says;
}

}  // namespace

TEST_CASE("transpositions keep the bytes only where the axes stay in order in memory") {
  int count = 0;
  for (const Dims& d :
       {Dims{2, 3, 4, 5}, Dims{1, 3, 4, 5}, Dims{2, 1, 4, 5}, Dims{2, 3, 1, 1}, Dims{2, 8, 1, 5}})
    for (const char* from : kLayouts)
      for (const char* to : kLayouts) {
        Ints perm = {0, 1, 2, 3};
        do {
          Dims y;
          for (int64_t p : perm) y.push_back(d[static_cast<size_t>(p)]);
          count += said(cat("graph \"g\"(%x: f32", d, from, ") { %y = transpose(%x) {perm = ", perm,
                            "} : f32", y, to, " return %y }"));
        } while (std::next_permutation(perm.begin(), perm.end()));
      }
  CHECK(count > 40);
  const std::string x = "graph \"g\"(%x: f32[2,3,4,5]";
  CHECK(said(x + "{nhwc}) { %y = transpose(%x) {perm = [0,2,3,1]} : f32[2,4,5,3] return %y }"));
  CHECK(said(x + ") { %y = transpose(%x) {perm = [0,3,1,2]} : f32[2,5,3,4]{nhwc} return %y }"));
  CHECK_FALSE(said(x + ") { %y = transpose(%x) {perm = [0,3,1,2]} : f32[2,5,3,4] return %y }"));
  CHECK_FALSE(said(x + "{nhwc}) { %y = transpose(%x) {perm = [0,2,3,1]} : f32[2,4,5,3]{nhwc} return %y }"));
}

TEST_CASE("reshapes of channels-last images keep the bytes if batch and channels stay") {
  for (const Dims& to : {Dims{2, 3, 20}, Dims{2, 3, 5, 4}, Dims{2, 3, 2, 2, 5}, Dims{2, 12, 5}, Dims{6, 4, 5},
                         Dims{3, 2, 20}, Dims{2, 60}, Dims{120}, Dims{2, 3, 4, 5, 1}})
    for (const char* from : kLayouts)
      for (const char* layout : kLayouts) {
        if (to.size() < 3 && *layout) continue;
        const bool says = said(cat("graph \"g\"(%x: f32[2,3,4,5]", from, ") { %y = reshape(%x) {dims = dims",
                                   to, "} : f32", to, layout, " return %y }"));
        const bool pixels = to.size() > 2 && to[0] == 2 && to[1] == 3;
        const std::string both = cat(from, layout);
        CHECK(says == (both.empty() || (both == "{nhwc}{nhwc}" && pixels)));
      }
}

TEST_CASE("a change of layout keeps the bytes of one place or one channel") {
  for (const Dims& d : {Dims{2, 3, 4, 5}, Dims{2, 3, 1, 1}, Dims{2, 1, 4, 5}, Dims{2, 3, 5}})
    for (const char* from : kLayouts)
      for (const char* to : {"plain", "nhwc", "c8"}) {
        const std::string layout = std::string(to) == "plain" ? "" : cat("{", to, "}");
        const bool says = said(cat("graph \"g\"(%x: f32", d, from, ") { %y = layout(%x) {to = \"", to,
                                   "\"} : f32", d, layout, " return %y }"));
        const bool blocks = cat(from, layout).find("c8") != std::string::npos;
        const bool alike = from == layout || element_count(Dims(d.begin() + 2, d.end())) == 1 || d[1] == 1;
        CHECK(says == (!blocks && alike));
      }
}
