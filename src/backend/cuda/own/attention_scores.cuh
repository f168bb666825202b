// SPDX-License-Identifier: Apache-2.0
// What happens to a score between the product and the softmax.
#pragma once

#include "backend/cuda/own/attention.h"
#include "backend/cuda/own/device.cuh"

namespace pelton::backend::cuda {

// Out of line: it is rare, and inlined for every score it fills the instruction cache.
__device__ __noinline__ inline float capped(float score, float cap) {
  return cap * tanhf(score / cap);
}
__device__ __forceinline__ bool sees(const Attention& g, int query, int key) {
  return key < g.keys && query < g.queries && !(g.causal && key > query + g.keys - g.queries);
}

// -inf for a key that the query does not see. kPlain: there is neither mask nor cap.
template <bool kPlain>
__device__ __forceinline__ float finished_score(const Attention& g, float score, int image, int head,
                                                int query, int key) {
  if (!sees(g, query, key)) return -INFINITY;
  float s = score * g.scale;
  if constexpr (!kPlain) {
    if (g.softcap != 0) s = capped(s, g.softcap);
    if (g.mask_kind != Attention::no_mask) {
      const int64_t at = image * g.mask_strides[0] + head * g.mask_strides[1] + query * g.mask_strides[2] +
                         key * g.mask_strides[3];
      if (g.mask_kind == Attention::boolean) return static_cast<const uint8_t*>(g.mask)[at] ? s : -INFINITY;
      float m[1];
      load_as<1>(g.mask_type, g.mask, at, m);
      s += m[0];
    }
  }
  return s;
}

}  // namespace pelton::backend::cuda
