// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/tile/lanes.h"

#include <cstring>

#include "tensor/float_types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/tile/lanes.cc"
#include "backend/cpu/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pelton::backend::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T, class L>
void load_as(const void* from, int64_t stride, void* lanes, int64_t n) {
  const T* p = static_cast<const T*>(from);
  L* out = static_cast<L*>(lanes);
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<L>(p[i]);
  else
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<L>(p[i * stride]);
}
template <class T, class L>
void store_as(const void* lanes, void* to, int64_t stride, int64_t n) {
  const L* p = static_cast<const L*>(lanes);
  T* out = static_cast<T*>(to);
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(p[i]);
  else
    for (int64_t i = 0; i < n; ++i) out[i * stride] = static_cast<T>(p[i]);
}

void load_bf16(const void* from, int64_t stride, void* lanes, int64_t n) {
  const auto* p = static_cast<const uint16_t*>(from);
  auto* out = static_cast<uint32_t*>(lanes);
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<uint32_t>(p[i]) << 16;
  else
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<uint32_t>(p[i * stride]) << 16;
}
void store_bf16(const void* lanes, void* to, int64_t stride, int64_t n) {
  const auto* p = static_cast<const uint32_t*>(lanes);
  auto* out = static_cast<uint16_t*>(to);
  auto narrow = [](uint32_t u) HWY_ATTR -> uint16_t {
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
    return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  };
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i) out[i] = narrow(p[i]);
  else
    for (int64_t i = 0; i < n; ++i) out[i * stride] = narrow(p[i]);
}

void load_f16(const void* from, int64_t stride, void* lanes, int64_t n) {
  const auto* p = static_cast<const uint16_t*>(from);
  auto* out = static_cast<float*>(lanes);
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  if (stride == 1) {
    const hn::ScalableTag<float> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> half;
    const auto* q = reinterpret_cast<const hwy::float16_t*>(p);
    const auto width = static_cast<int64_t>(hn::Lanes(d));
    for (; i + width <= n; i += width) hn::StoreU(hn::PromoteTo(d, hn::LoadU(half, q + i)), d, out + i);
  }
#endif
  for (; i < n; ++i) out[i] = f16_to_float(p[i * stride]);
}
void store_f16(const void* lanes, void* to, int64_t stride, int64_t n) {
  const auto* p = static_cast<const float*>(lanes);
  auto* out = static_cast<uint16_t*>(to);
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  if (stride == 1) {
    const hn::ScalableTag<float> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> half;
    auto* q = reinterpret_cast<hwy::float16_t*>(out);
    const auto width = static_cast<int64_t>(hn::Lanes(d));
    for (; i + width <= n; i += width) hn::StoreU(hn::DemoteTo(half, hn::LoadU(d, p + i)), half, q + i);
  }
#endif
  for (; i < n; ++i) out[i * stride] = f16_from_float(p[i]);
}

LoadFunction find_load(DType t) {
  switch (t) {
    case DType::f32:
      return load_as<float, float>;
    case DType::f64:
      return load_as<double, double>;
    case DType::f16:
      return load_f16;
    case DType::bf16:
      return load_bf16;
    case DType::i64:
    case DType::u64:
      return load_as<int64_t, int64_t>;
    case DType::i32:
      return load_as<int32_t, int64_t>;
    case DType::i16:
      return load_as<int16_t, int64_t>;
    case DType::i8:
      return load_as<int8_t, int64_t>;
    case DType::u32:
      return load_as<uint32_t, int64_t>;
    case DType::u16:
      return load_as<uint16_t, int64_t>;
    case DType::u8:
      return load_as<uint8_t, int64_t>;
    case DType::boolean:
      return load_as<uint8_t, uint8_t>;
    default:
      return nullptr;
  }
}
StoreFunction find_store(DType t) {
  switch (t) {
    case DType::f32:
      return store_as<float, float>;
    case DType::f64:
      return store_as<double, double>;
    case DType::f16:
      return store_f16;
    case DType::bf16:
      return store_bf16;
    case DType::i64:
    case DType::u64:
      return store_as<int64_t, int64_t>;
    case DType::i32:
    case DType::u32:
      return store_as<uint32_t, int64_t>;
    case DType::i16:
    case DType::u16:
      return store_as<uint16_t, int64_t>;
    case DType::i8:
    case DType::u8:
      return store_as<uint8_t, int64_t>;
    case DType::boolean:
      return store_as<uint8_t, uint8_t>;
    default:
      return nullptr;
  }
}

template <class T>
void store_whole_as(const void* lanes, void* to, int64_t stride, int64_t n) {
  const auto* p = static_cast<const float*>(lanes);
  T* out = static_cast<T*>(to);
  if (stride == 1)
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(static_cast<int32_t>(p[i]));
  else
    for (int64_t i = 0; i < n; ++i) out[i * stride] = static_cast<T>(static_cast<int32_t>(p[i]));
}
LoadFunction find_whole_load(DType t) {
  if (t == DType::u8) return load_as<uint8_t, float>;
  if (t == DType::i8) return load_as<int8_t, float>;
  if (t == DType::u16) return load_as<uint16_t, float>;
  return t == DType::i16 ? load_as<int16_t, float> : nullptr;
}
StoreFunction find_whole_store(DType t) {
  if (t == DType::u8) return store_whole_as<uint8_t>;
  if (t == DType::i8) return store_whole_as<int8_t>;
  if (t == DType::u16) return store_whole_as<uint16_t>;
  return t == DType::i16 ? store_whole_as<int16_t> : nullptr;
}

}  // namespace pelton::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pelton::backend::cpu {

Lane lane_of(DType t) {
  if (t == DType::boolean) return Lane::boolean;
  if (is_int(t)) return Lane::i64;
  return t == DType::f64 ? Lane::f64 : Lane::f32;
}
bool has_lane(DType t) {
  return t == DType::boolean || is_compute(t);
}
bool is_direct(DType t) {
  return t == DType::f32 || t == DType::f64 || t == DType::i64 || t == DType::u64 || t == DType::boolean;
}
LoadFunction load_function(DType t, device::CpuIsa isa) {
  return PELTON_SIMD_PICK(isa, find_load)(t);
}
StoreFunction store_function(DType t, device::CpuIsa isa) {
  return PELTON_SIMD_PICK(isa, find_store)(t);
}
LoadFunction load_whole(DType t, device::CpuIsa isa) {
  return PELTON_SIMD_PICK(isa, find_whole_load)(t);
}
StoreFunction store_whole(DType t, device::CpuIsa isa) {
  return PELTON_SIMD_PICK(isa, find_whole_store)(t);
}

}  // namespace pelton::backend::cpu
#endif
