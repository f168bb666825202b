// SPDX-License-Identifier: Apache-2.0
// Attention, rotary embedding and linear attention of ai.onnx.
#include "onnx/import/attention.h"

#include <cmath>

#include "onnx/import/helpers.h"
#include "onnx/import/importer.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

void attention(NodeContext& c) {
  AttentionCall call;
  bool flat = c.b.rank(c.in(0)) == 3;
  int64_t heads = flat ? c.need_int("q_num_heads") : 0, kv_heads = flat ? c.need_int("kv_num_heads") : 0;
  auto split = [&](size_t i, int64_t n) { return flat ? split_heads(c, c.in(i), n) : c.in(i); };
  call.q = split(0, heads);
  call.k = split(1, kv_heads);
  call.v = split(2, kv_heads);
  if (c.has(4)) {
    call.offset = as_scalar(c, c.b.shape(c.in(4)).at(2));
    call.k = concat(c, {c.in(4), call.k}, 2);
    call.v = concat(c, {c.in(5), call.v}, 2);
  }
  Dim keys = c.b.shape(call.k).at(2), queries = c.b.shape(call.q).at(2);
  if (c.has(3)) call.mask = widened_mask(c, c.in(3), keys);
  if (c.has(6)) {
    ValueId valid = c.b.reshape(c.b.cast(c.in(6), DType::i64), {c.b.shape(c.in(6)).at(0), 1, 1, 1});
    call.mask = both_masks(c, call.mask, c.b.op("lt", {positions(c, keys, 3), valid}));
    call.offset = c.b.sub(valid, as_scalar(c, queries));
  }
  call.scale = c.get_real("scale", 0);
  call.softcap = c.get_real("softcap", 0);
  call.causal = c.get_int("is_causal", 0) != 0;
  call.left = c.get_int("left_window_size", -1);
  call.right = c.get_int("right_window_size", -1);
  call.softmax_type = c.get_dtype("softmax_precision", at_least_f32(c.b.dtype(call.q)));
  auto mode = static_cast<Scores>(c.get_int("qk_matmul_output_mode", 0));
  if (c.wants(3) && (mode < Scores::raw || mode > Scores::probabilities))
    c.refuse(ErrorCode::bad_format, "qk_matmul_output_mode is not 0, 1, 2 or 3");
  AttentionResult r = attend(c, call, c.wants(3) ? mode : Scores::none);
  c.out(0, flat ? merge_heads(c, r.y) : r.y);
  c.out(1, call.k);
  c.out(2, call.v);
  if (c.wants(3)) c.out(3, r.scores);
}

void rotary(NodeContext& c) {
  std::vector<ValueId> inputs{c.in(0), c.in(1), c.in(2)};
  if (c.has(3)) inputs.push_back(c.b.cast(c.in(3), DType::i64));
  c.out(0, c.b.op("rotary", inputs,
                  {{"interleaved", c.get_int("interleaved", 0) != 0},
                   {"heads", c.get_int("num_heads", 0)},
                   {"dims", c.get_int("rotary_embedding_dim", 0)}}));
}

// One step of linear attention as a scan body: state S[N,G,D,E], then q, k, v of the step, decay and beta.
struct LinearStep {
  bool gated, delta;
  int64_t times;  // query heads a key head
  double scale;
};
std::shared_ptr<ir::Graph> linear_body(NodeContext& c, const std::vector<ir::Type>& types,
                                       const LinearStep& step) {
  GraphBuild build("step");
  build.graph.symbols = c.b.graph().symbols;
  build.builder.set_name(c.b.node_name());
  ir::Builder& b = build.builder;
  std::vector<ValueId> in;
  for (const ir::Type& t : types) in.push_back(build.graph.add_input(t));
  size_t next = 4;
  ValueId state = in[0], q = in[1], k = b.unsqueeze(in[2], {3}),
          v = b.unsqueeze(in[3], {2});  // k[N,G,D,1], v[N,G,1,E]
  if (step.gated) state = b.mul(state, b.op("exp", {b.unsqueeze(in[next++], {3})}));
  ValueId update = v;
  if (step.delta) {
    ValueId held = b.op("matmul", {k, state}, {{"transpose_a", true}});
    update = b.mul(b.sub(v, held), b.unsqueeze(in[next], {3}));
  }
  state = b.add(state, b.matmul(k, update));
  // q[N,G*times,D] to [N,G,times,D]; all query heads of a key head read the same state.
  const Shape ks = b.shape(in[2]), vs = b.shape(in[3]);
  ValueId grouped = b.reshape(q, {ks.at(0), ks.at(1), step.times, ks.at(2)});
  ValueId y = b.mul(b.matmul(grouped, state), b.like(state, step.scale));
  build.graph.outputs = {state, b.reshape(y, {ks.at(0), ks.at(1) * step.times, vs.at(2)})};
  return std::make_shared<ir::Graph>(std::move(build.graph));
}

void linear_attention(NodeContext& c) {
  int64_t heads = c.need_int("q_num_heads"), kv_heads = c.need_int("kv_num_heads");
  std::string rule = c.get_text("update_rule", "gated_delta");
  LinearStep step{rule == "gated" || rule == "gated_delta", rule == "delta" || rule == "gated_delta",
                  kv_heads > 0 ? heads / kv_heads : 0, c.get_real("scale", 0)};
  if (step.times < 1 || heads % kv_heads || (!step.gated && !step.delta && rule != "linear"))
    c.refuse(ErrorCode::bad_format,
             cat("has ", heads, " heads, ", kv_heads, " key heads and rule \"", rule, "\""));
  DType t = c.b.dtype(c.in(0)), state_type = c.has(3) ? c.b.dtype(c.in(3)) : t;
  // [N,T,heads*D] to [N,T,heads,D], in f32
  auto unpack = [&](ValueId x, int64_t n) {
    const Shape s = c.b.shape(x);
    return c.b.reshape(c.b.cast(x, at_least_f32(t)), {s.at(0), s.at(1), n, Dim::floor_div(s.at(2), n)});
  };
  ValueId q = unpack(c.in(0), heads), k = unpack(c.in(1), kv_heads), v = unpack(c.in(2), kv_heads);
  const Shape ks = c.b.shape(k), vs = c.b.shape(v);
  if (step.scale == 0)
    step.scale = 1 / std::sqrt(static_cast<double>(c.need_const(ks.at(3), "the head size")));
  const Shape blank{ks.at(0), kv_heads, ks.at(3), vs.at(3)};
  ValueId state = c.has(3) ? c.b.cast(c.in(3), c.b.dtype(q)) : zeros(c, c.b.dtype(q), blank);
  std::vector<ValueId> inputs{state, q, k, v};
  auto gate = [&](size_t i) {  // [N,T,G*D], [N,T,G] or [N,T,1] to [N,T,G,D or 1]
    ValueId x = c.in(i);
    Dim last = c.b.shape(x).at(2);
    inputs.push_back(unpack(x, last == Dim(1) ? 1 : kv_heads));
  };
  if (step.gated) gate(4);
  if (step.delta) gate(5);
  auto scanned = static_cast<int64_t>(inputs.size() - 1);
  std::vector<ir::Type> types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    types.push_back(c.b.type(inputs[i]));
    if (i) types.back().shape.erase(types.back().shape.begin() + 1);
  }
  auto y = c.b.ops("scan", inputs,
                   {{"body", ir::GraphPtr(linear_body(c, types, step))},
                    {"carried", int64_t{1}},
                    {"scanned", scanned},
                    {"axes", Ints(static_cast<size_t>(scanned), 1)},
                    {"reverse", Ints(static_cast<size_t>(scanned), 0)},
                    {"out_axes", Ints{1}},
                    {"out_reverse", Ints{0}}},
                   2);
  const Shape ys = c.b.shape(y[1]);
  c.out(0, c.b.cast(c.b.reshape(y[1], {ys.at(0), ys.at(1), ys.at(2) * ys.at(3)}), t));
  c.out(1, c.b.cast(y[0], state_type));
}

// Attention whose scores and probabilities pass through sub-graphs of the model.
void flex_attention(NodeContext& c) {
  ValueId q = c.in(0), k = c.in(1), v = c.in(2);
  DType t = c.b.dtype(q), wide = c.get_dtype("softmax_precision", at_least_f32(t));
  const Shape qs = c.b.shape(q);
  const int64_t heads = c.need_const(qs.at(1), "the number of heads"),
                groups = c.need_const(c.b.shape(k).at(1), "the number of key heads");
  if (groups < 1 || heads % groups != 0)
    c.refuse(ErrorCode::bad_shape, cat("has ", heads, " heads for ", groups, " key heads"));
  const int64_t times = heads / groups;
  double scale =
      c.get_real("scale", 1 / std::sqrt(static_cast<double>(c.need_const(qs.at(3), "the head size"))));
  ValueId s = c.b.op("matmul", {c.b.cast(q, wide), c.b.cast(repeat_heads(c, k, times), wide)},
                     {{"transpose_b", true}});
  s = c.b.mul(s, c.b.like(s, scale));
  auto modify = [&](std::string_view name, ValueId x) {
    return c.has_attr(name) ? c.importer.import_inline(c.need_graph(name), {x}, c.scope).at(0) : x;
  };
  s = modify("score_mod", s);
  ValueId p = modify("prob_mod", c.b.op("softmax", {s}, {{"axis", int64_t{-1}}}));
  c.out(0, c.b.cast(c.b.matmul(p, c.b.cast(repeat_heads(c, v, times), wide)), t));
}

}  // namespace

void add_attention(ImportTable& table) {
  table.add("Attention", attention);
  table.add("RotaryEmbedding", rotary);
  table.add("LinearAttention", linear_attention);
  table.add("ai.onnx.preview", "FlexAttention", flex_attention);
}

}  // namespace pelton::onnx
