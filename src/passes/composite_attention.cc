// SPDX-License-Identifier: Apache-2.0
// Attention from matmul, scale, mask, softmax, matmul over rank 3 or 4 operands.
#include <cmath>

#include "passes/composites.h"
#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

struct Scores {
  ValueId q, k, mask;
  double scale = 1;
  bool k_transposed = false;  // k is [.., D, M] rather than [.., M, D]
};

// Takes v apart as mask + scale * (q k^T), the scale anywhere among the factors.
std::optional<Scores> scores_of(const Graph& g, ValueId v) {
  Scores s;
  if (NodeId add = producer(g, v, "add"); add && single_use(g, v)) {
    for (size_t i : {size_t{0}, size_t{1}}) {
      ValueId inner = input(g, add, i);
      NodeId p = g[inner].producer;
      if (p && (g[p].is("matmul") || g[p].is("mul") || g[p].is("div")) && single_use(g, inner) &&
          same_shape(g, inner, v)) {
        s.mask = input(g, add, 1 - i);
        v = inner;
        break;
      }
    }
    if (!s.mask) return std::nullopt;
  }
  auto peel = [&](ValueId& x) {
    for (;;) {
      if (!x || !g[x].producer || !single_use(g, x)) return;
      NodeId p = g[x].producer;
      if (g[p].is("mul")) {
        auto parts = with_scalar(g, p);
        if (!parts || !same_shape(g, parts->x, x)) return;
        s.scale *= parts->scalar;
        x = parts->x;
      } else if (g[p].is("div")) {
        auto c = uniform(g, input(g, p, 1));
        if (!c || *c == 0 || !same_shape(g, input(g, p, 0), x)) return;
        s.scale /= *c;
        x = input(g, p, 0);
      } else {
        return;
      }
    }
  };
  peel(v);
  NodeId product = producer(g, v, "matmul");
  if (!product || !single_use(g, v) || g[product].inputs.size() != 2 || g[product].get_bool("transpose_a"))
    return std::nullopt;
  s.q = input(g, product, 0);
  s.k = input(g, product, 1);
  s.k_transposed = !g[product].get_bool("transpose_b");
  peel(s.q);
  peel(s.k);
  return s;
}

bool attention(Graph& g, NodeId id, const Context& context) {
  if (g[id].inputs.size() != 2 || g[id].get_bool("transpose_a") || g[id].get_bool("transpose_b"))
    return false;
  ValueId p = input(g, id, 0), v = input(g, id, 1);
  NodeId soft = producer(g, p, "softmax");
  if (!soft || !single_use(g, p)) return false;
  int64_t rank = g.type(p).rank();
  if ((rank != 3 && rank != 4) || g.type(v).rank() != rank || !is_float(g.type(p).dtype)) return false;
  int64_t axis = g[soft].get_int("axis");
  if ((axis < 0 ? axis + rank : axis) != rank - 1) return false;
  auto s = scores_of(g, input(g, soft, 0));
  if (!s || g.type(s->q).rank() != rank || g.type(s->k).rank() != rank) return false;
  // Batch dims must be the same, not broadcast.
  auto batch = [&](ValueId x) { return Shape(g.type(x).shape.begin(), g.type(x).shape.end() - 2); };
  if (batch(s->q) != batch(s->k) || batch(s->q) != batch(v)) return false;
  if (s->mask && (g.type(s->mask).dtype != g.type(p).dtype || g.type(s->mask).rank() > rank)) return false;

  Builder b(g, id);
  b.set_name(g[id].name);
  auto four = [&](ValueId x) {
    if (rank == 4) return x;
    Shape shape = b.shape(x);
    shape.insert(shape.begin() + 1, Dim(1));
    return b.reshape(x, shape);
  };
  ValueId q = four(s->q), k = four(s->k), values = four(v), mask = s->mask;
  if (s->k_transposed) k = b.transpose(k, {0, 1, 3, 2});
  if (mask && rank == 3 && b.rank(mask) == 3) mask = four(mask);
  if (s->scale <= 0) return false;  // 0 would mean the default
  ValueId y = b.op("attention", {q, k, values, mask}, {{"scale", s->scale}});
  // Kept whole only if something can run it whole.
  if (context.oracle && !context.oracle->refuse(g, g[y].producer).empty()) return false;
  replace(g, id, b.reshape(y, b.shape(result(g, id))));
  return true;
}

const Rule kRules[] = {{"composites/attention", {"matmul"}, attention}};

}  // namespace

bool recognise_attention(Graph& graph, const Context& context) {
  return apply_rules(graph, kRules, context);
}

}  // namespace pelton::passes
