// SPDX-License-Identifier: Apache-2.0
// Families of movement beside those of backend/cpu/implementations.h.
#pragma once

#include "backend/kernel.h"

namespace pelton::backend::cpu {

void add_scatter_any(Registry& registry);  // gather_nd; scatters of every type and reduction
void add_generate(Registry& registry);     // iota, one_hot, trilu, pads that repeat

}  // namespace pelton::backend::cpu
