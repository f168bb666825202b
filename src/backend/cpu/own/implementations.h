// SPDX-License-Identifier: Apache-2.0
// Families of own kernels beside those of backend/cpu/implementations.h.
#pragma once

#include "backend/kernel.h"

namespace pelton::backend::cpu {

void add_byte_contraction(Registry& registry);  // exact 8-bit products without VNNI
void add_channelwise(Registry& registry);       // a value a channel on channels-last tensors
void add_dynamic_quantize(Registry& registry);  // to 8 bits over the range that is there
void add_max_pool(Registry& registry);          // with indices
void add_row_norm(Registry& registry);          // layer_norm, rms_norm of f32 rows
void add_fft(Registry& registry);               // of real lines, one-sided
void add_grouped_conv(Registry& registry);      // convolutions in groups of few channels

}  // namespace pelton::backend::cpu
