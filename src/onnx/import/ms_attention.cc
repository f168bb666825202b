// SPDX-License-Identifier: Apache-2.0
// Attention of com.microsoft: what ONNX Runtime's transformer optimiser and its generators of decoders write.
#include <limits>

#include "onnx/import/attention.h"
#include "onnx/import/helpers.h"
#include "onnx/import/quantize.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

// mask_index is a key mask [N,M], a full one [N,L,M] or [N,1,L,M], key lengths [N], or ends and then starts
// [2N].
ValueId key_mask(NodeContext& c, ValueId mask, const Dim& batch, const Dim& keys) {
  int64_t rank = c.b.rank(mask);
  const Shape s = c.b.shape(mask);
  ValueId wide = c.b.cast(mask, DType::i64);
  if (rank == 1) {
    ValueId at = positions(c, keys, 3);
    auto bound = [&](ValueId v) { return c.b.reshape(v, {batch, 1, 1, 1}); };
    if (s.at(0) == batch * 2) {
      ValueId end = slice_axis(c, wide, 0, 0, batch), start = slice_axis(c, wide, 0, batch, batch);
      return c.b.op("and", {c.b.op("lt", {at, bound(end)}), c.b.op("ge", {at, bound(start)})});
    }
    if (s.at(0) == batch || !s.at(0).is_const()) return c.b.op("lt", {at, bound(wide)});
    c.refuse(ErrorCode::unsupported_op,
             cat("has a mask_index ", c.b.type(mask).str(), " for a batch of ", batch.str(),
                 ", which is neither one length a sequence nor an end and a start"),
             "give the model a mask [batch, keys], or fix the batch in the file");
  }
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

// Past and present in one buffer, of which input `length_at` says how much is in use.
void refuse_shared_buffer(NodeContext& c, size_t length_at) {
  if (c.get_int("past_present_share_buffer", 0) || c.has(length_at))
    c.refuse(ErrorCode::unsupported_op, "past and present that share a buffer are not supported",
             "export the model without past_present_share_buffer, or with GroupQueryAttention");
}

// q, k and v side by side in all[N,L,E]; past and present are [2,N,H,P,D].
void attend_packed(NodeContext& c, ValueId all, ValueId mask, ValueId old, ValueId added) {
  int64_t heads = c.need_int("num_heads");
  if (c.get_int("do_rotary", 0))
    c.refuse(ErrorCode::unsupported_op, "rotates queries and keys itself (do_rotary)",
             "export the model with RotaryEmbedding nodes in front of it");
  Ints sizes = c.get_ints("qkv_hidden_sizes");
  const Shape s = c.b.shape(all);
  if (sizes.empty()) {
    int64_t third = c.need_const(s.at(2), "the width of q, k and v") / 3;
    sizes = {third, third, third};
  }
  auto parts = split_axis(c, all, 2, to_shape(sizes));
  AttentionCall call;
  DType t = c.b.dtype(all);
  call.q = split_heads(c, parts.at(0), heads);
  call.k = split_heads(c, parts.at(1), heads);
  call.v = split_heads(c, parts.at(2), heads);
  Dim fresh = s.at(1), past = 0;
  if (old) {
    const Shape os = c.b.shape(old);
    past = os.at(3);
    auto halves = split_axis(c, old, 0, {1, 1});
    auto drop = [&](ValueId v) { return c.b.reshape(v, {os.at(1), os.at(2), os.at(3), os.at(4)}); };
    call.k = concat(c, {drop(halves[0]), call.k}, 2);
    call.v = concat(c, {drop(halves[1]), call.v}, 2);
  }
  Dim keys = past + fresh;
  if (mask) call.mask = as_added(c, key_mask(c, mask, s.at(0), keys), t);
  if (added) call.mask = call.mask ? c.b.add(call.mask, added) : added;
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

// x[N,L,I] through one matrix for q, k and v.
void attention(NodeContext& c) {
  refuse_shared_buffer(c, 6);
  ValueId all = c.b.matmul(c.in(0), c.in(1));
  if (c.has(2)) all = c.b.add(all, c.in(2));
  attend_packed(c, all, c.opt(3), c.opt(4), c.opt(5));
}

// x, w (8 bits), bias (f32), x_scale, w_scale, [mask, x_zero, w_zero, past]; of w one or one a column.
void quantised_attention(NodeContext& c) {
  refuse_shared_buffer(c, c.input_count());
  ValueId x_zero = c.has(6) ? to_scalar(c, c.in(6)) : ValueId{}, w_zero;
  if (c.has(7)) w_zero = quant_parameter(c, c.in(7));
  ValueId sum = c.b.op("matmul", {c.in(0), c.in(1), x_zero, w_zero});
  ValueId scale = c.b.mul(to_scalar(c, c.in(3)), quant_parameter(c, c.in(4)));
  ValueId all = c.b.add(c.b.mul(c.b.cast(sum, c.b.dtype(scale)), scale), c.in(2));
  attend_packed(c, all, c.opt(5), c.opt(8), {});
}

// [N,L,H,count,D] to `count` of [N,L,H*D].
std::vector<ValueId> unpacked(NodeContext& c, ValueId x, int64_t count) {
  const Shape s = c.b.shape(x);
  auto parts = split_axis(c, x, 3, Shape(static_cast<size_t>(count), Dim(1)));
  for (ValueId& p : parts) p = c.b.reshape(p, {s.at(0), s.at(1), s.at(2) * s.at(4)});
  return parts;
}

// query[N,L,H*D], key and value likewise (or [N,H,M,D]); bias, key mask, added bias, past key and value.
void multi_head_attention(NodeContext& c) {
  int64_t heads = c.need_int("num_heads");
  AttentionCall call;
  ValueId q = c.in(0), k = c.opt(1), v = c.opt(2), bias = c.opt(3);
  refuse_shared_buffer(c, 8);
  if (c.b.rank(q) == 5) {  // [N,L,H,3,D]
    auto parts = unpacked(c, q, 3);
    q = parts[0], k = parts[1], v = parts[2];
  } else if (k && !v && c.b.rank(k) == 5) {  // [N,M,H,2,D]
    auto parts = unpacked(c, k, 2);
    k = parts[0], v = parts[1];
  }
  if (!k || !v) c.refuse(ErrorCode::bad_format, "has neither keys and values nor packed ones");
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
  if (c.has(4))
    call.mask = as_added(c, key_mask(c, c.in(4), c.b.shape(call.q).at(0), c.b.shape(call.k).at(2)), t);
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

// fresh[N,G,L,D] behind the first `used`[N] rows of each sequence of past[N,G,P,D]: [N,G,P+L,D].
ValueId appended(NodeContext& c, ValueId past, ValueId fresh, ValueId used) {
  const Shape s = c.b.shape(past);
  if (s.at(2) == Dim(0)) return fresh;
  Shape room(4, Dim(0));
  room[2] = c.b.shape(fresh).at(2);
  ValueId wide = c.b.op("pad", {past, c.b.like(past, 0)},
                        {{"low", Shape(4, Dim(0))}, {"high", room}, {"mode", std::string("constant")}});
  return c.b.op("tensor_scatter", {wide, fresh, used}, {{"axis", int64_t{2}}});
}

// The present that the op yields: as long as the past if that has room for all keys, else as long as they
// are.
ValueId present(NodeContext& c, ValueId all, const Dim& past, ValueId total) {
  if (c.b.shape(all).at(2) == past || past == Dim(0)) return all;
  if (auto known = c.contents_of(total); known && known->size() == 1)
    return slice_axis(c, all, 2, 0, Dim::max(past, known->at(0)));
  ValueId end = c.b.op("max", {as_scalar(c, past), to_scalar(c, c.b.cast(total, DType::i64))});
  return c.b.op("dynamic_slice", {all, c.b.ints({0}), c.b.reshape(end, {1}), c.b.ints({2}), {}});
}

// Causal attention with few key heads. query[N,L,H*D]; past[N,G,P,D], of which seqlens_k[N] + 1 - L rows are
// in use: P is the longest past, or the room of a buffer for all that is to come.
void group_query_attention(NodeContext& c) {
  int64_t heads = c.need_int("num_heads"), groups = c.need_int("kv_num_heads");
  if (c.wants(3) || c.has(12) || c.get_int("kv_cache_bit_width", 0))
    c.refuse(ErrorCode::unsupported_op, "a quantised cache and scores as a result are not supported",
             "export the model without them");
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
  // Rows of the past in use; a prompt, which may be padded behind, has none.
  ValueId used, zero = c.b.scalar(DType::i64, 0);
  if (!(past == Dim(0)))
    used = c.b.op(
        "max",
        {c.b.sub(c.b.reshape(c.b.cast(c.in(5), DType::i64), {s.at(0)}), as_scalar(c, s.at(1) - 1)), zero});
  if (c.get_int("do_rotary", 0)) {
    ValueId at;
    if (c.has(9)) {
      at = c.b.cast(c.in(9), DType::i64);
    } else {
      at = c.b.reshape(positions(c, s.at(1), 3), {1, s.at(1)});
      if (used) at = c.b.add(at, c.b.unsqueeze(used, {1}));
      at = c.b.broadcast_to(at, {s.at(0), s.at(1)});
    }
    bool interleaved = c.get_int("rotary_interleaved", 0) != 0;
    call.q = rotated(c, call.q, c.in(7), c.in(8), at, interleaved);
    call.k = rotated(c, call.k, c.in(7), c.in(8), at, interleaved);
  }
  if (used) {
    call.k = appended(c, c.in(3), call.k, used);
    call.v = appended(c, c.in(4), call.v, used);
    call.offset = c.b.reshape(used, {s.at(0), 1, 1, 1});
  }
  call.causal = true;
  int64_t window = c.get_int("local_window_size", -1);
  call.left = window > 0 ? window - 1 : -1;
  if (c.has(10)) call.mask = widened_mask(c, c.in(10), c.b.shape(call.k).at(2));
  if (c.has(11))
    call.sink = c.b.reshape(c.in(11), {1, heads, 1, 1});
  else if (c.get_int("smooth_softmax", 0) > 0)
    call.sink = filled(c, c.b.dtype(q), {1, heads, 1, 1}, 0);
  call.scale = c.get_real("scale", 0);
  call.softcap = c.get_real("softcap", 0);
  c.out(0, merge_heads(c, attend(c, call).y));
  if (c.wants(1)) c.out(1, present(c, call.k, past, c.in(6)));
  if (c.wants(2)) c.out(2, present(c, call.v, past, c.in(6)));
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

void add_ms_attention(ImportTable& table) {
  table.add(kMsDomain, "Attention", attention);
  table.add(kMsDomain, "QAttention", quantised_attention);
  table.add(kMsDomain, "MultiHeadAttention", multi_head_attention);
  table.add(kMsDomain, "GroupQueryAttention", group_query_attention);
  table.add(kMsDomain, "RotaryEmbedding", rotary);
}

}  // namespace pelton::onnx
