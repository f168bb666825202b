// SPDX-License-Identifier: Apache-2.0
// The inner loops of the own contraction: rows of A [M, K] times a panel of B [K, columns] that lies packed.
#pragma once

#include <cstdint>

#include "backend/cpu/tile/step.h"

namespace pelton::backend::cpu {

// Columns of a panel: the stride between its rows, and of the result's rows.
int64_t panel_columns(Lane lane, device::CpuIsa isa);
// Rows of A that one call handles at most.
inline constexpr int64_t kPanelRows = 8;

// out[r, c] = sum over k of a[r * lda + k] * panel[k * columns + c] for `rows` rows; out rows lie `columns`
// apart. Sums run over k in order, in f32, f64 or (wrapping) 64-bit integers.
using PanelFunction = void (*)(int64_t rows, int64_t k, const void* a, int64_t lda, const void* panel,
                               void* out);
PanelFunction panel_function(Lane lane, device::CpuIsa isa);

}  // namespace pelton::backend::cpu
