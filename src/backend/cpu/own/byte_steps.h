// SPDX-License-Identifier: Apache-2.0
// The inner loops of exact products of 8-bit integers where the processor has no instruction for them (VNNI):
// operands widened to 16 bits, pairs of their products summed in 32.
#pragma once

#include <cstdint>

#include "device/target.h"

namespace pelton::backend::cpu {

inline constexpr int64_t kByteColumns = 16;  // of a panel of weights

struct ByteSteps {
  int64_t rows = 0;  // that one call of `product` should bring, to fill the registers
  // to[i] = from[i] - zero, from u8 or i8.
  void (*widen_unsigned)(const uint8_t* from, int64_t n, int16_t zero, int16_t* to) = nullptr;
  void (*widen_signed)(const int8_t* from, int64_t n, int16_t zero, int16_t* to) = nullptr;
  // A panel of one tap from w[channel * channel_stride + output * output_stride], u8 or i8, less `zero`;
  // outputs behind the first `outputs` and a last odd channel become 0.
  void (*pack_unsigned)(const uint8_t* w, int64_t channel_stride, int64_t output_stride, int64_t channels,
                        int64_t outputs, int16_t zero, int16_t* panel) = nullptr;
  void (*pack_signed)(const int8_t* w, int64_t channel_stride, int64_t output_stride, int64_t channels,
                      int64_t outputs, int16_t zero, int16_t* panel) = nullptr;
  // out[r * ld + c] = sum over taps t and pairs i of a[r][taps[t] + 2 i + e] panel[t][i][c][e], e = 0, 1, for
  // kByteColumns columns c. Reads one element behind a run of odd length (its weight is 0).
  void (*product)(int64_t rows, const int16_t* const* a, int64_t tap_count, const int64_t* taps,
                  int64_t pairs, const int16_t* panel, int32_t* out, int64_t ld) = nullptr;
  // out[c] = sum over taps t of x[taps[t] + c] w[t * ld + c], `columns` of them rounded up to kByteColumns.
  void (*channelwise)(const int16_t* x, int64_t tap_count, const int64_t* taps, const int32_t* w, int64_t ld,
                      int64_t columns, int32_t* out) = nullptr;
  // In place: sums to f32, rounded to nearest.
  void (*to_f32)(void* values, int64_t n) = nullptr;
};

// From AVX2 on.
ByteSteps byte_steps(device::CpuIsa isa);

}  // namespace pelton::backend::cpu
