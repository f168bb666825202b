// SPDX-License-Identifier: Apache-2.0
// Device-side helpers of our own kernels: storage types, vector access, scalar functions, steps after a sum.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(__half x) {
  return __half2float(x);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

template <int N>
struct Count {
  static constexpr int value = N;
};

template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
  T v[V];
};

// V neighbouring elements from p[0]; the address must be a multiple of V elements (of 16 bytes at most).
template <int V, class T>
__device__ __forceinline__ void load_v(const T* p, float (&out)[V]) {
  constexpr int kStep = V * sizeof(T) > 16 ? 16 / sizeof(T) : V;
#pragma unroll
  for (int i = 0; i < V; i += kStep) {
    const Pack<T, kStep> pack = *reinterpret_cast<const Pack<T, kStep>*>(p + i);
#pragma unroll
    for (int j = 0; j < kStep; ++j) out[i + j] = to_float(pack.v[j]);
  }
}
template <int V, class T>
__device__ __forceinline__ void store_v(T* p, const float (&x)[V]) {
  constexpr int kStep = V * sizeof(T) > 16 ? 16 / sizeof(T) : V;
#pragma unroll
  for (int i = 0; i < V; i += kStep) {
    Pack<T, kStep> pack;
#pragma unroll
    for (int j = 0; j < kStep; ++j) pack.v[j] = from_float<T>(x[i + j]);
    *reinterpret_cast<Pack<T, kStep>*>(p + i) = pack;
  }
}
// The same with the type known at run time; `index` in elements.
template <int V>
__device__ __forceinline__ void load_as(Elem type, const void* p, int64_t index, float (&out)[V]) {
  if (type == Elem::f16)
    load_v<V>(static_cast<const __half*>(p) + index, out);
  else if (type == Elem::bf16)
    load_v<V>(static_cast<const __nv_bfloat16*>(p) + index, out);
  else
    load_v<V>(static_cast<const float*>(p) + index, out);
}
template <int V>
__device__ __forceinline__ void store_as(Elem type, void* p, int64_t index, const float (&x)[V]) {
  if (type == Elem::f16)
    store_v<V>(static_cast<__half*>(p) + index, x);
  else if (type == Elem::bf16)
    store_v<V>(static_cast<__nv_bfloat16*>(p) + index, x);
  else
    store_v<V>(static_cast<float*>(p) + index, x);
}

__device__ __forceinline__ float sigmoid(float x) {
  return __fdividef(1.0f, 1.0f + __expf(-x));
}

// Long or rare functions stay out of line: inlined eight times into every kernel they push the rest out of
// the instruction cache.
__device__ __noinline__ inline float rare_function(EpilogueStep::Op op, float v, float a) {
  using S = EpilogueStep;
  switch (op) {
    case S::tanh:
      return tanhf(v);
    case S::gelu:
      return 0.5f * v * (1.0f + erff(v * 0.70710678118654752f));
    case S::gelu_tanh:
      return 0.5f * v * (1.0f + tanhf(0.79788456080286536f * (v + 0.044715f * v * v * v)));
    case S::elu:
      return v < 0 ? a * expm1f(v) : v;
    case S::mish:
      return v * tanhf(v > 20 ? v : log1pf(expf(v)));
    default:
      return expf(v);
  }
}

// V neighbouring channels of a result, the first of them at `channel` of image `image`, `offset` elements
// into the result.
template <int V>
__device__ __forceinline__ void apply_step(const EpilogueStep& s, float (&x)[V], int64_t offset, int image,
                                           int channel, int channels) {
  using S = EpilogueStep;
  float o[V];
  if (s.where != S::none) {
    if (s.where == S::one) {
      float one[1];
      load_as<1>(s.type, s.operand, 0, one);
#pragma unroll
      for (int i = 0; i < V; ++i) o[i] = one[0];
    } else {
      const int64_t at = s.where == S::channel ? channel
                         : s.where == S::full  ? offset
                                               : static_cast<int64_t>(image) * channels + channel;
      load_as<V>(s.type, s.operand, at, o);
    }
  }
#define PELTON_EACH(expression)                   \
  _Pragma("unroll") for (int i = 0; i < V; ++i) { \
    const float v = x[i];                         \
    x[i] = (expression);                          \
  }                                               \
  break
  switch (s.op) {
    case S::linear:
      PELTON_EACH(s.a * v + s.b);
    case S::relu:
      PELTON_EACH(v < 0 ? 0.0f : v);
    case S::sigmoid:
      PELTON_EACH(sigmoid(v));
    case S::silu:
      PELTON_EACH(v * sigmoid(v));
    case S::hard_swish:
      PELTON_EACH(v * fminf(fmaxf(v * (1.0f / 6) + 0.5f, 0.0f), 1.0f));
    case S::hard_sigmoid:
      PELTON_EACH(fminf(fmaxf(s.a * v + s.b, 0.0f), 1.0f));
    case S::leaky_relu:
      PELTON_EACH(v < 0 ? s.a * v : v);
    case S::clamp:
      PELTON_EACH(v < s.a ? s.a : v > s.b ? s.b : v);
    case S::tanh:
    case S::gelu:
    case S::gelu_tanh:
    case S::elu:
    case S::mish:
    case S::exp:
      PELTON_EACH(rare_function(s.op, v, s.a));
    case S::abs:
      PELTON_EACH(fabsf(v));
    case S::square:
      PELTON_EACH(v * v);
    case S::sqrt:
      PELTON_EACH(sqrtf(v));
    case S::round:
      PELTON_EACH(rintf(v));
    case S::add:
      PELTON_EACH(v + o[i]);
    case S::sub:
      PELTON_EACH(v - o[i]);
    case S::mul:
      PELTON_EACH(v * o[i]);
    case S::div:
      PELTON_EACH(v / o[i]);
    case S::max:
      PELTON_EACH(v != v || v > o[i] ? v : o[i]);
    case S::min:
      PELTON_EACH(v != v || v < o[i] ? v : o[i]);
    case S::prelu:
      PELTON_EACH(v < 0 ? v * o[i] : v);
  }
#undef PELTON_EACH
}
// From step `first` on.
template <int V>
__device__ __forceinline__ void apply_epilogue(const Epilogue& e, float (&x)[V], int64_t offset, int image,
                                               int channel, int channels, int first = 0) {
#pragma unroll 1
  for (int i = first; i < e.count; ++i) apply_step<V>(e.steps[i], x, offset, image, channel, channels);
}

// V operands of a sum among the steps as they lie in memory, asked for long before they are added: a small
// kernel would wait for them at its end. V is even.
template <int V>
struct EarlyOperand {
  bool there = false;
  Elem type = Elem::f32;
  uint32_t words[V];
};
template <int V>
__device__ __forceinline__ EarlyOperand<V> early_operand(const Epilogue& e, int step,
                                                         EpilogueStep::Where where, int64_t index,
                                                         bool inside) {
  EarlyOperand<V> o;
  const EpilogueStep& s = e.steps[step];
  o.there = step < e.count && s.op == EpilogueStep::add && s.where == where && inside;
  o.type = s.type;
  if (!o.there) return o;
  auto load = [&](auto count, const void* from) {
    constexpr int kWords = decltype(count)::value, kEach = kWords < 4 ? kWords : 4;
#pragma unroll
    for (int i = 0; i < kWords; i += kEach) {
      const auto pack = reinterpret_cast<const Pack<uint32_t, kEach>*>(from)[i / kEach];
#pragma unroll
      for (int j = 0; j < kEach; ++j) o.words[i + j] = pack.v[j];
    }
  };
  if (s.type == Elem::f32)
    load(Count<V>(), static_cast<const float*>(s.operand) + index);
  else
    load(Count<V / 2>(), static_cast<const uint16_t*>(s.operand) + index);
  return o;
}
template <int V>
__device__ __forceinline__ void add_early(const EarlyOperand<V>& o, float (&x)[V]) {
  if (o.type == Elem::f32) {
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] += __uint_as_float(o.words[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const uint32_t bits = i % 2 ? o.words[i / 2] >> 16 : o.words[i / 2] & 0xFFFFu;
    const auto half = static_cast<unsigned short>(bits);
    x[i] += o.type == Elem::f16 ? __half2float(__ushort_as_half(half)) : __uint_as_float(bits << 16);
  }
}

}  // namespace pelton::backend::cuda
