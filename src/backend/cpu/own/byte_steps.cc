// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/own/byte_steps.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/own/byte_steps.cc"
#include "backend/cpu/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pelton::backend::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using DI = hn::CappedTag<int32_t, kByteColumns>;
using DF = hn::RebindToFloat<DI>;
using DS = hn::Repartition<int16_t, DI>;
constexpr int64_t kLanes = HWY_TARGET == HWY_AVX3 ? 16 : 8, kVectors = kByteColumns / kLanes;
// With the columns of a panel these rows fill the registers.
constexpr int64_t kRows = HWY_TARGET == HWY_AVX3 ? 14 : 6;

template <class T>
void widen(const T* from, int64_t n, int16_t zero, int16_t* to) {
  const hn::ScalableTag<int16_t> d;
  const hn::Rebind<T, decltype(d)> bytes;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto z = hn::Set(d, zero);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Sub(hn::PromoteTo(d, hn::LoadU(bytes, from + i)), z), d, to + i);
  for (; i < n; ++i) to[i] = static_cast<int16_t>(from[i] - zero);
}

template <class T>
void pack(const T* w, int64_t channel_stride, int64_t output_stride, int64_t channels, int64_t outputs,
          int16_t zero, int16_t* panel) {
  for (int64_t l = 0; l < channels; l += 2, panel += 2 * kByteColumns) {
    const T *first = w + l * channel_stride, *second = first + channel_stride;
    const auto fill = [&](int64_t count, int64_t step) HWY_ATTR {
      for (int64_t c = 0; c < count; ++c) panel[2 * c] = static_cast<int16_t>(first[c * step] - zero);
      if (l + 1 == channels)
        for (int64_t c = 0; c < count; ++c) panel[2 * c + 1] = 0;
      else
        for (int64_t c = 0; c < count; ++c) panel[2 * c + 1] = static_cast<int16_t>(second[c * step] - zero);
    };
    if (outputs == kByteColumns && output_stride == 1) {
      fill(kByteColumns, 1);
      continue;
    }
    fill(outputs, output_stride);
    for (int64_t i = 2 * outputs; i < 2 * kByteColumns; ++i) panel[i] = 0;
  }
}

template <int64_t R>
HWY_INLINE void product_rows(const int16_t* const* a, int64_t tap_count, const int64_t* taps, int64_t pairs,
                             const int16_t* panel, int32_t* out, int64_t ld) {
  const DI d;
  const DS s;
  hn::Vec<DI> sum[R][kVectors], unused = hn::Zero(d);
  for (int64_t r = 0; r < R; ++r)
    for (int64_t v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  for (int64_t t = 0; t < tap_count; ++t) {
    const int16_t* at[R];
    for (int64_t r = 0; r < R; ++r) at[r] = a[r] + taps[t];
    for (int64_t i = 0; i < pairs; ++i, panel += 2 * kByteColumns) {
      hn::Vec<DS> w[kVectors];
      for (int64_t v = 0; v < kVectors; ++v) w[v] = hn::LoadU(s, panel + v * 2 * kLanes);
      for (int64_t r = 0; r < R; ++r) {
        int32_t pair;
        std::memcpy(&pair, at[r] + 2 * i, sizeof pair);
        const auto x = hn::BitCast(s, hn::Set(d, pair));
        for (int64_t v = 0; v < kVectors; ++v)
          sum[r][v] = hn::ReorderWidenMulAccumulate(d, x, w[v], sum[r][v], unused);
      }
    }
  }
  for (int64_t r = 0; r < R; ++r)
    for (int64_t v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, out + r * ld + v * kLanes);
}
void product(int64_t rows, const int16_t* const* a, int64_t tap_count, const int64_t* taps, int64_t pairs,
             const int16_t* panel, int32_t* out, int64_t ld) {
  for (; rows >= kRows; rows -= kRows, a += kRows, out += kRows * ld)
    product_rows<kRows>(a, tap_count, taps, pairs, panel, out, ld);
  for (; rows >= 2; rows -= 2, a += 2, out += 2 * ld)
    product_rows<2>(a, tap_count, taps, pairs, panel, out, ld);
  if (rows) product_rows<1>(a, tap_count, taps, pairs, panel, out, ld);
}

void channelwise(const int16_t* x, int64_t tap_count, const int64_t* taps, const int32_t* w, int64_t ld,
                 int64_t columns, int32_t* out) {
  const DI d;
  const hn::Rebind<int16_t, DI> half;
  for (int64_t c = 0; c < columns; c += kByteColumns) {
    hn::Vec<DI> sum[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) sum[v] = hn::Zero(d);
    for (int64_t t = 0; t < tap_count; ++t)
      for (int64_t v = 0; v < kVectors; ++v) {
        const int64_t at = c + v * kLanes;
        const auto value = hn::PromoteTo(d, hn::LoadU(half, x + taps[t] + at));
        sum[v] = hn::Add(sum[v], hn::Mul(value, hn::LoadU(d, w + t * ld + at)));
      }
    for (int64_t v = 0; v < kVectors; ++v) hn::StoreU(sum[v], d, out + c + v * kLanes);
  }
}

void to_f32(void* values, int64_t n) {
  const DI d;
  const DF f;
  auto* from = static_cast<int32_t*>(values);
  auto* to = static_cast<float*>(values);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::ConvertTo(f, hn::LoadU(d, from + i)), f, to + i);
  for (; i < n; ++i) to[i] = static_cast<float>(from[i]);
}

}  // namespace

ByteSteps byte_loops() {
  return {kRows, widen<uint8_t>, widen<int8_t>, pack<uint8_t>, pack<int8_t>, product, channelwise, to_f32};
}
#else
ByteSteps byte_loops() {
  return {};
}
#endif

}  // namespace pelton::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pelton::backend::cpu {

ByteSteps byte_steps(device::CpuIsa isa) {
  return PELTON_SIMD_PICK(isa, byte_loops)();
}

}  // namespace pelton::backend::cpu
#endif
