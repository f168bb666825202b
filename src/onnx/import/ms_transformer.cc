// SPDX-License-Identifier: Apache-2.0
// com.microsoft ops that ONNX Runtime's transformer optimiser leaves in a model.
#include <cmath>
#include <limits>

#include "onnx/import/attention.h"
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

// mask_index is a key mask [N,M], a full one [N,L,M] or [N,1,L,M], or key lengths [N].
ValueId key_mask(NodeContext& c, ValueId mask, const Dim& keys) {
  int64_t rank = c.b.rank(mask);
  const Shape s = c.b.shape(mask);
  ValueId wide = c.b.cast(mask, DType::i64);
  if (rank == 1) return c.b.op("lt", {positions(c, keys, 3), c.b.reshape(wide, {s.at(0), 1, 1, 1})});
  ValueId on = c.b.op("ne", {wide, c.b.scalar(DType::i64, 0)});
  if (rank == 2) return c.b.reshape(on, {s.at(0), 1, 1, s.at(1)});
  if (rank == 3) return c.b.unsqueeze(on, {1});
  return on;
}

// The contrib ops add a large negative number where the mask is off, which keeps rows without keys finite.
ValueId as_added(NodeContext& c, ValueId allowed, DType t) {
  double off = c.get_real("mask_filter_value", -10000);
  return c.b.select(allowed, c.b.scalar(t, 0), c.b.scalar(t, off));
}

// x[N,L,I] through one matrix for q, k and v; past and present are [2,N,H,P,D].
void attention(NodeContext& c) {
  ValueId x = c.in(0), w = c.in(1);
  int64_t heads = c.need_int("num_heads");
  ValueId all = c.b.matmul(x, w);
  if (c.has(2)) all = c.b.add(all, c.in(2));
  Ints sizes = c.get_ints("qkv_hidden_sizes");
  const Shape s = c.b.shape(all);
  if (sizes.empty()) {
    int64_t third = c.need_const(s.at(2), "the width of q, k and v") / 3;
    sizes = {third, third, third};
  }
  auto parts = split_axis(c, all, 2, to_shape(sizes));
  AttentionCall call;
  DType t = c.b.dtype(x);
  call.q = split_heads(c, parts.at(0), heads);
  call.k = split_heads(c, parts.at(1), heads);
  call.v = split_heads(c, parts.at(2), heads);
  Dim fresh = s.at(1), past = 0;
  if (c.has(4)) {
    ValueId old = c.in(4);
    const Shape os = c.b.shape(old);
    past = os.at(3);
    auto halves = split_axis(c, old, 0, {1, 1});
    auto drop = [&](ValueId v) { return c.b.reshape(v, {os.at(1), os.at(2), os.at(3), os.at(4)}); };
    call.k = concat(c, {drop(halves[0]), call.k}, 2);
    call.v = concat(c, {drop(halves[1]), call.v}, 2);
  }
  Dim keys = past + fresh;
  if (c.has(3)) call.mask = as_added(c, key_mask(c, c.in(3), keys), t);
  if (c.has(5)) call.mask = call.mask ? c.b.add(call.mask, c.in(5)) : c.in(5);
  call.scale = c.get_real("scale", 0);
  if (c.get_int("unidirectional", 0)) {
    ValueId place = c.b.add(positions(c, fresh, 2), as_scalar(c, past));
    ValueId causal = c.b.op("le", {positions(c, keys, 3), place});
    ValueId hidden =
        c.b.select(causal, c.b.scalar(t, 0), c.b.scalar(t, -std::numeric_limits<double>::infinity()));
    call.mask = call.mask ? c.b.add(call.mask, hidden) : hidden;
  }
  c.out(0, merge_heads(c, attend(c, call).y));
  if (c.wants(1)) c.out(1, concat(c, {c.b.unsqueeze(call.k, {0}), c.b.unsqueeze(call.v, {0})}, 0));
}

// query[N,L,H*D], key and value likewise (or [N,H,M,D]); bias, key mask, added bias, past key and value.
void multi_head_attention(NodeContext& c) {
  int64_t heads = c.need_int("num_heads");
  AttentionCall call;
  ValueId q = c.in(0), k = c.opt(1), v = c.opt(2), bias = c.opt(3);
  if (c.b.rank(q) == 5 || !k || !v)
    c.refuse(ErrorCode::unsupported_op, "packed queries, keys and values are not supported");
  bool ready = c.b.rank(k) == 4;  // keys of cross attention, already split
  if (bias) {
    Dim qw = c.b.shape(q).at(2), vw = ready ? qw : c.b.shape(v).at(2);
    auto parts = split_axis(c, bias, 0, {qw, qw, vw});
    q = c.b.add(q, parts[0]);
    if (!ready) k = c.b.add(k, parts[1]), v = c.b.add(v, parts[2]);
  }
  call.q = split_heads(c, q, heads);
  call.k = ready ? k : split_heads(c, k, heads);
  call.v = ready ? v : split_heads(c, v, heads);
  if (c.has(6)) {
    call.offset = as_scalar(c, c.b.shape(c.in(6)).at(2));
    call.k = concat(c, {c.in(6), call.k}, 2);
    call.v = concat(c, {c.in(7), call.v}, 2);
  }
  DType t = c.b.dtype(q);
  if (c.has(4)) call.mask = as_added(c, key_mask(c, c.in(4), c.b.shape(call.k).at(2)), t);
  if (c.has(5)) call.mask = call.mask ? c.b.add(call.mask, c.in(5)) : c.in(5);
  call.scale = c.get_real("scale", 0);
  call.causal = c.get_int("unidirectional", 0) != 0;
  c.out(0, merge_heads(c, attend(c, call).y));
  c.out(1, call.k);
  c.out(2, call.v);
}

ValueId rotated(NodeContext& c, ValueId x, ValueId cos, ValueId sin, ValueId at, bool interleaved) {
  return c.b.op("rotary", {x, cos, sin, at}, {{"interleaved", interleaved}});
}

// Causal attention with few key heads. query[N,L,H*D]; past[N,G,P,D]; seqlens_k[N] is the last valid key.
void group_query_attention(NodeContext& c) {
  int64_t heads = c.need_int("num_heads"), groups = c.need_int("kv_num_heads");
  ValueId q = c.in(0), k = c.opt(1), v = c.opt(2);
  const Shape s = c.b.shape(q);
  if (!k || !v) {  // packed: H query heads, then G key and G value heads
    Dim head = Dim::floor_div(s.at(2), heads + 2 * groups);
    auto parts = split_axis(c, q, 2, {head * heads, head * groups, head * groups});
    q = parts[0], k = parts[1], v = parts[2];
  }
  AttentionCall call;
  call.q = split_heads(c, q, heads);
  call.k = split_heads(c, k, groups);
  call.v = split_heads(c, v, groups);
  Dim past = c.has(3) ? c.b.shape(c.in(3)).at(2) : Dim(0);
  if (c.get_int("do_rotary", 0)) {
    ValueId at;
    if (c.has(9))
      at = c.b.cast(c.in(9), DType::i64);
    else
      at = c.b.broadcast_to(c.b.add(c.b.reshape(positions(c, s.at(1), 3), {1, s.at(1)}), as_scalar(c, past)),
                            {s.at(0), s.at(1)});
    bool interleaved = c.get_int("rotary_interleaved", 0) != 0;
    call.q = rotated(c, call.q, c.in(7), c.in(8), at, interleaved);
    call.k = rotated(c, call.k, c.in(7), c.in(8), at, interleaved);
  }
  if (c.has(3)) {
    call.k = concat(c, {c.in(3), call.k}, 2);
    call.v = concat(c, {c.in(4), call.v}, 2);
  }
  call.offset = as_scalar(c, past);
  call.causal = true;
  int64_t window = c.get_int("local_window_size", -1);
  call.left = window > 0 ? window - 1 : -1;
  Dim keys = past + s.at(1);
  ValueId valid = c.b.reshape(c.b.cast(c.in(5), DType::i64), {s.at(0), 1, 1, 1});
  call.mask = c.b.op("le", {positions(c, keys, 3), valid});
  if (c.has(10)) call.mask = both_masks(c, c.in(10), call.mask);
  call.scale = c.get_real("scale", 0);
  call.softcap = c.get_real("softcap", 0);
  c.out(0, merge_heads(c, attend(c, call).y));
  c.out(1, call.k);
  c.out(2, call.v);
}

// x[N,L,H*D] or [N,H,L,D]; positions are [N,L] or one start.
void rotary(NodeContext& c) {
  ValueId x = c.in(0), at = c.b.cast(c.in(1), DType::i64), cos = c.in(2), sin = c.in(3);
  bool flat = c.b.rank(x) == 3;
  const Shape s = c.b.shape(x);
  Dim length = flat ? s.at(1) : s.at(2);
  int64_t heads = c.get_int("num_heads", 0), dims = c.get_int("rotary_embedding_dim", 0);
  if (flat && heads == 0)
    heads = c.need_const(s.at(2), "the width") / (2 * c.need_const(c.b.shape(cos).at(1), "the rotary size"));
  if (c.b.rank(at) == 1) {
    ValueId line =
        c.b.op("iota", {}, {{"dims", Shape{1, length}}, {"axis", int64_t{1}}, {"dtype", DType::i64}});
    at = c.b.broadcast_to(c.b.add(line, to_scalar(c, at)), {s.at(0), length});
  }
  c.out(0, c.b.op("rotary", {x, cos, sin, at},
                  {{"interleaved", c.get_int("interleaved", 0) != 0},
                   {"heads", flat ? heads : 0},
                   {"dims", dims}}));
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
  table.add(kMsDomain, "Attention", attention);
  table.add(kMsDomain, "MultiHeadAttention", multi_head_attention);
  table.add(kMsDomain, "GroupQueryAttention", group_query_attention);
  table.add(kMsDomain, "RotaryEmbedding", rotary);
}

}  // namespace pelton::onnx
