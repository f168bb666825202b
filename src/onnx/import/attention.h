// SPDX-License-Identifier: Apache-2.0
// Attention as the ops of ai.onnx and com.microsoft ask for it. Letters: N batch, H query heads, G key heads
// (H a multiple of G), L queries, M keys, D and E head sizes.
#pragma once

#include <optional>

#include "onnx/import/node_context.h"

namespace pelton::onnx {

struct AttentionCall {
  ValueId q, k, v;   // [N,H,L,D], [N,G,M,D], [N,G,M,E]
  ValueId mask;      // bool or added, broadcasts to [N,H,L,M]; may be absent
  double scale = 0;  // 0: 1 / sqrt(D)
  double softcap = 0;
  bool causal = false;
  // Position of query 0 among the keys, i64 broadcasting to [N,1,1,1]; absent: 0.
  ValueId offset;
  int64_t left = -1, right = -1;  // window around a query's position, -1: open
  ValueId sink;  // scores [1,H,1,1] that take a share of each softmax and are no key; may be absent
  DType softmax_type = DType::f32;
};

// Scores that an op may ask for besides its result.
enum class Scores { none = -1, raw = 0, capped = 1, biased = 2, probabilities = 3 };

struct AttentionResult {
  ValueId y;       // [N,H,L,E]
  ValueId scores;  // [N,H,L,M]
};
AttentionResult attend(NodeContext& c, const AttentionCall& call, Scores scores = Scores::none);

// [N,L,H*D] to [N,H,L,D] and back.
ValueId split_heads(NodeContext& c, ValueId x, int64_t heads);
ValueId merge_heads(NodeContext& c, ValueId x);
// Each key head `times` times: [N,G,M,D] to [N,G*times,M,D].
ValueId repeat_heads(NodeContext& c, ValueId x, int64_t times);
// i64 positions 0, 1, ... shaped to broadcast along `axis` of rank 4.
ValueId positions(NodeContext& c, const Dim& count, size_t axis);
ValueId as_scalar(NodeContext& c, const Dim& d);  // i64 of rank 0
// A mask whose last axis is shorter than the keys leaves the rest out.
ValueId widened_mask(NodeContext& c, ValueId mask, const Dim& keys);
// Where `allowed` is false the mask says minus infinity; combines with a bool or an added mask.
ValueId both_masks(NodeContext& c, ValueId mask, ValueId allowed);

}  // namespace pelton::onnx
