// SPDX-License-Identifier: Apache-2.0
// What both forms of batch norm compute alike. Included after device.cuh or what stands in for it.
#pragma once

#include <cmath>
#include <limits>

#include "backend/cuda/own/batch_norm.h"

namespace pelton::backend::cuda {

// With the fields that are set where it starts.
inline BatchNorm started(BatchNorm d) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  d.low = -kInfinity;
  d.high = kInfinity;
  int i = 0;
  if (d.epilogue.count > 0 && d.epilogue.steps[0].op == EpilogueStep::add &&
      d.epilogue.steps[0].where == EpilogueStep::full && d.epilogue.steps[0].type == d.type)
    d.added = d.epilogue.steps[i++].operand;
  if (i < d.epilogue.count) {
    const EpilogueStep& s = d.epilogue.steps[i];
    const bool relu = s.op == EpilogueStep::relu;
    if (relu || s.op == EpilogueStep::clamp) {
      d.low = relu ? 0 : s.a;
      if (!relu) d.high = s.b;
      ++i;
    }
  }
  d.simple_steps = i == d.epilogue.count;
  // A number rounds to 0 up to half of the least above 0, to 6 up to half of the distance to the next one.
  const float least = d.type == Elem::bf16  ? std::ldexp(1.0f, -134)
                      : d.type == Elem::f16 ? std::ldexp(1.0f, -25)
                                            : 0;
  if (d.through == BatchNorm::positive) {
    d.gate_low = std::nextafter(least, kInfinity);
    d.gate_high = kInfinity;
  } else {
    d.gate_low = -least;
    d.gate_high = 6 + (d.type == Elem::bf16 ? 1.0f / 64 : d.type == Elem::f16 ? 1.0f / 512 : 0);
  }
  return d;
}

// g where it passes, else 0. kOwn: mean, factor and bias of each element, or of all.
template <int V, int kOwn>
__device__ __forceinline__ void pass_gate(const BatchNorm& d, const float (&x)[V], const float (&mean)[kOwn],
                                          const float (&factor)[kOwn], const float (&bias)[kOwn],
                                          float (&g)[V]) {
  if (d.through == BatchNorm::open) return;
#pragma unroll
  for (int e = 0; e < V; ++e) {
    const int c = kOwn == 1 ? 0 : e;
    const float y = fmaf(x[e] - mean[c], factor[c], bias[c]);
    g[e] = y >= d.gate_low && y <= d.gate_high ? g[e] : 0.0f;
  }
}

// The mean of the middle two of four elements of each channel, in their type: what is left of data of one
// magnitude without it is exact in f32, and one element far out does not move it. 0 where that is no number.
template <class T, int kOwn>
__device__ __forceinline__ void sample(const BatchNorm& d, int channel, float (&to)[kOwn]) {
  const int64_t rows = d.n * d.places;
  float x[4][kOwn];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int64_t row = rows * k / 4;
    const int64_t at =
        d.channels_last ? row * d.c + channel : (row / d.places * d.c + channel) * d.places + row % d.places;
#pragma unroll
    for (int e = 0; e < kOwn; ++e) x[k][e] = to_float(static_cast<const T*>(d.x)[at + e]);
  }
#pragma unroll
  for (int e = 0; e < kOwn; ++e) {
    const float low = fmaxf(fminf(x[0][e], x[1][e]), fminf(x[2][e], x[3][e])),
                high = fminf(fmaxf(x[0][e], x[1][e]), fmaxf(x[2][e], x[3][e]));
    to[e] = to_float(from_float<T>(0.5f * low + 0.5f * high));
    if (!isfinite(to[e])) to[e] = 0;
  }
}

// What the last pass needs of a channel. Forward: y = (x - v[0]) v[1] + v[2]. Backward, with the mean:
// dx = v[0] g + (v[2] (x - mean) + v[1]).
struct NormTable {
  float v[3];
};

// What is known of a channel beside its sums.
struct NormChannel {
  float scale = 0, bias = 0, old_mean = 0, old_var = 0, rstd = 0;
  double share = 0;  // of one place in a mean
};
template <bool kBackward>
__device__ __forceinline__ NormChannel norm_channel(const BatchNorm& d, int c) {
  NormChannel n;
  n.share = 1.0 / static_cast<double>(d.n * d.places);
  auto load = [c](Elem type, const void* p, float& to) {
    float one[1];
    load_as<1>(type, p, c, one);
    to = one[0];
  };
  load(d.parameter_type, d.scale, n.scale);
  if (kBackward) {
    n.rstd = d.rstd[c];
  } else {
    load(d.parameter_type, d.bias, n.bias);
    if (d.new_mean) load(d.statistic_type, d.old_mean, n.old_mean);
    if (d.new_var) load(d.statistic_type, d.old_var, n.old_var);
  }
  return n;
}

// From the sums of channel c: forward of x less `shift` and of its square, backward of g and g (x - mean).
// One that `writes` stores the results of the channel, too.
template <bool kBackward>
__device__ __forceinline__ NormTable finish_channel(const BatchNorm& d, int c, const NormChannel& n, double a,
                                                    double b, float shift, bool writes) {
  auto store = [c](Elem type, void* p, double value) {
    if (!p) return;
    const float one[1] = {static_cast<float>(value)};
    store_as<1>(type, p, c, one);
  };
  if constexpr (kBackward) {
    // dx = factor (g - mean(g) - (x - mean) rstd^2 mean(g (x - mean))).
    const float factor = n.scale * n.rstd;
    if (writes) {
      store(d.parameter_type, d.dbias, a);
      store(d.parameter_type, d.dscale, b * n.rstd);
    }
    return {{factor, -factor * static_cast<float>(a * n.share),
             -factor * static_cast<float>(b * n.share * n.rstd * n.rstd)}};
  } else {
    const double offset = a * n.share, mean = shift + offset;
    double var = b * n.share - offset * offset;
    if (var < 0) var = 0;
    const double rstd = rsqrt(var + d.eps);
    if (writes) {
      store(d.statistic_type, d.new_mean, n.old_mean * d.keep + mean * (1 - d.keep));
      store(d.statistic_type, d.new_var, n.old_var * d.keep + var * (1 - d.keep));
      store(Elem::f32, d.batch_mean, mean);
      store(Elem::f32, d.batch_rstd, rstd);
    }
    return {{static_cast<float>(mean), static_cast<float>(n.scale * rstd), n.bias}};
  }
}

// What follows the norm of V neighbours.
enum class NormEnd { steps, bounds, sum_and_bounds };
template <class T, int V, NormEnd kEnd>
__device__ __forceinline__ void end_norm(const BatchNorm& d, float (&x)[V], const float (&added)[V],
                                         int64_t at, int image, int channel) {
  if constexpr (kEnd == NormEnd::steps) {
    apply_epilogue<V>(d.epilogue, x, at, image, channel, d.c);
  } else {
#pragma unroll
    for (int e = 0; e < V; ++e) {
      const float v = kEnd == NormEnd::sum_and_bounds ? x[e] + added[e] : x[e];
      x[e] = v < d.low ? d.low : v > d.high ? d.high : v;
    }
  }
}
inline NormEnd end_of(const BatchNorm& d) {
  return !d.simple_steps ? NormEnd::steps : d.added ? NormEnd::sum_and_bounds : NormEnd::bounds;
}

}  // namespace pelton::backend::cuda
