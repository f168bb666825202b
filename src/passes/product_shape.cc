// SPDX-License-Identifier: Apache-2.0
#include "passes/product_shape.h"

#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

// reshape(matmul(a[M, K], w[K, N]) (+ b[N]), [B..., N]) becomes matmul(reshape(a, [B..., K]), w) (+ b).
bool take_reshape_in(Graph& g, NodeId reshape) {
  ValueId v = input(g, reshape, 0), bias;
  const Shape shape = g.type(result(g, reshape)).shape;
  if (!single_use(g, v) || shape.size() < 3) return false;
  if (NodeId add = producer(g, v, "add")) {
    for (size_t i : {size_t{0}, size_t{1}})
      if (producer(g, input(g, add, i), "matmul") && single_use(g, input(g, add, i)) &&
          g.type(input(g, add, 1 - i)).rank() == 1 && g.type(input(g, add, i)).shape == g.type(v).shape) {
        bias = input(g, add, 1 - i);
        v = input(g, add, i);
        break;
      }
  }
  NodeId matmul = producer(g, v, "matmul");
  if (!matmul || g[matmul].inputs.size() != 2 || g[matmul].get_bool("transpose_a")) return false;
  ValueId a = input(g, matmul, 0), w = input(g, matmul, 1);
  if (g.type(a).rank() != 2 || g.type(w).rank() != 2) return false;
  const Shape& product = g.type(v).shape;
  if (equal(shape.back(), product.back(), g.symbols->ranges) != Tri::yes) return false;
  Shape rows(shape.begin(), shape.end() - 1);
  if (equal(element_count(rows), product[0], g.symbols->ranges) != Tri::yes) return false;
  Shape outer = rows;
  outer.push_back(g.type(a).shape[1]);
  Builder b(g, reshape);
  b.set_name(g[matmul].name);
  ValueId y = b.op("matmul", {b.reshape(a, outer), w}, g[matmul].attrs);
  if (bias) y = b.add(y, bias);
  if (g.type(y).shape != shape) return false;  // sizes that are equal but written otherwise
  g.replace_uses(result(g, reshape), y);
  return true;
}

}  // namespace

bool product_shape(Graph& graph, const Context& context) {
  if (context.target.kind == device::Kind::cpu) return false;
  bool changed = false;
  for (NodeId id : std::vector<NodeId>(graph.order()))
    if (graph[id].alive && graph[id].is("reshape") && !graph[id].outputs.empty() &&
        take_reshape_in(graph, id)) {
      context.count("product_shape/inside");
      changed = true;
    }
  remove_dead(graph);
  return changed;
}

}  // namespace pelton::passes
