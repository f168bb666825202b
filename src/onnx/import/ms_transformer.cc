// SPDX-License-Identifier: Apache-2.0
// com.microsoft ops that ONNX Runtime's transformer optimiser leaves in a model.
#include <cmath>

#include "onnx/import/helpers.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

void fast_gelu(NodeContext& c) {
  ValueId x = c.has(1) ? c.b.add(c.in(0), c.in(1)) : c.in(0);
  c.out(0, c.b.op("gelu", {x}, {{"tanh", true}}));
}
void gelu(NodeContext& c) {
  c.out(0, c.b.op("gelu", {c.in(0)}));
}
void bias_gelu(NodeContext& c) {
  c.out(0, c.b.op("gelu", {c.b.add(c.in(0), c.in(1))}));
}
void quick_gelu(NodeContext& c) {
  ValueId x = c.in(0);
  c.out(0, c.b.mul(x, c.b.op("sigmoid",
                             {c.b.mul(x, c.b.like(x, c.get_real("alpha", static_cast<double>(1.702f))))})));
}

double epsilon(NodeContext& c) {
  return c.get_real("epsilon", static_cast<double>(1e-12f));
}

// x + skip + bias, then a norm over the last axis; output 3 is the sum.
void skip_norm(NodeContext& c, bool rms) {
  size_t bias_at = rms ? 3 : 4;
  ValueId sum = c.b.add(c.in(0), c.in(1));
  if (c.has(bias_at)) sum = c.b.add(sum, c.in(bias_at));
  int64_t axis = c.b.rank(sum) - 1;
  std::vector<ValueId> inputs{sum, c.in(2)};
  if (!rms && c.has(3)) inputs.push_back(c.in(3));
  c.out(0, c.b.op(rms ? "rms_norm" : "layer_norm", inputs, {{"axis", axis}, {"eps", epsilon(c)}}));
  c.out(3, sum);
}
void skip_layer_norm(NodeContext& c) {
  skip_norm(c, false);
}
void skip_rms_norm(NodeContext& c) {
  skip_norm(c, true);
}

void simplified_layer_norm(NodeContext& c) {
  ValueId x = c.in(0);
  int64_t axis = c.axis(c.get_int("axis", -1), c.b.rank(x));
  auto y = c.b.ops("rms_norm", {x, c.in(1)},
                   {{"axis", axis}, {"eps", c.get_real("epsilon", static_cast<double>(1e-5f))}},
                   c.wants(1) ? 2 : 1);
  c.out(0, y[0]);
  if (c.wants(1)) c.out(1, y[1]);
}

// Words, positions and segments summed and normalised. ids[N,L]
void embed_layer_norm(NodeContext& c) {
  ValueId ids = c.b.cast(c.in(0), DType::i64);
  const Shape s = c.b.shape(ids);
  auto rows = [&](ValueId table, ValueId at) {
    return c.b.op("gather", {table, at}, {{"axis", int64_t{0}}});
  };
  // Statements, not conditional expressions: g++ 12 destroys the lists of the branch that is not taken.
  ValueId place;
  if (c.has(8))
    place = c.b.cast(c.in(8), DType::i64);
  else
    place = c.b.op("iota", {}, {{"dims", Shape{1, s.at(1)}}, {"axis", int64_t{1}}, {"dtype", DType::i64}});
  ValueId sum = c.b.add(rows(c.in(2), ids), rows(c.in(3), place));
  if (c.has(1) && c.has(4)) sum = c.b.add(sum, rows(c.in(4), c.b.cast(c.in(1), DType::i64)));
  c.out(0, c.b.op("layer_norm", {sum, c.in(5), c.in(6)}, {{"axis", int64_t{2}}, {"eps", epsilon(c)}}));
  if (c.wants(1)) {
    // Keys in use of each sequence: the sum of its mask.
    if (c.has(7))
      c.out(1, c.b.cast(reduce(c, "reduce_sum", c.in(7), {1}, false), DType::i32));
    else
      c.out(1, filled(c, DType::i32, {s.at(0)}, 0));
  }
  c.out(2, sum);
}

}  // namespace

void add_ms_transformer(ImportTable& table) {
  table.add(kMsDomain, "FastGelu", fast_gelu);
  table.add(kMsDomain, "Gelu", gelu);
  table.add(kMsDomain, "BiasGelu", bias_gelu);
  table.add(kMsDomain, "QuickGelu", quick_gelu);
  table.add(kMsDomain, "SkipLayerNormalization", skip_layer_norm);
  table.add(kMsDomain, "SkipSimplifiedLayerNormalization", skip_rms_norm);
  table.add(kMsDomain, "SimplifiedLayerNormalization", simplified_layer_norm);
  table.add("SimplifiedLayerNormalization", simplified_layer_norm);
  table.add(kMsDomain, "EmbedLayerNormalization", embed_layer_norm);
}

}  // namespace pelton::onnx
