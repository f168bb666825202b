// SPDX-License-Identifier: Apache-2.0
// The same groups as single loops, written by hand: what a tile program is measured against in L1.
#pragma once

#include <cstdint>

namespace pelton::bench {

// in[i] has the group's inputs in order: [rows, columns], [columns] or [rows, 1].
using HandWritten = void (*)(const float* const* in, float* out, int64_t rows, int64_t columns);

void add_relu(const float* const* in, float* out, int64_t rows, int64_t columns);
void bias_gelu(const float* const* in, float* out, int64_t rows, int64_t columns);
void silu_mul(const float* const* in, float* out, int64_t rows, int64_t columns);
void scale_shift(const float* const* in, float* out, int64_t rows, int64_t columns);
void hard_swish_add(const float* const* in, float* out, int64_t rows, int64_t columns);
void sub_square(const float* const* in, float* out, int64_t rows, int64_t columns);
void lerp(const float* const* in, float* out, int64_t rows, int64_t columns);
void gate_rows(const float* const* in, float* out, int64_t rows, int64_t columns);
void tanh_scale(const float* const* in, float* out, int64_t rows, int64_t columns);
void softmax(const float* const* in, float* out, int64_t rows, int64_t columns);
void add_layer_norm(const float* const* in, float* out, int64_t rows, int64_t columns);
void add_rms_norm(const float* const* in, float* out, int64_t rows, int64_t columns);

}  // namespace pelton::bench
