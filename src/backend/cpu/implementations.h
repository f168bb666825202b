// SPDX-License-Identifier: Apache-2.0
// The families of CPU implementations, each added by one call; register.cc fixes their order.
#pragma once

#include "backend/kernel.h"

namespace pelton::backend::cpu {

void add_tile_programs(Registry& registry);  // pointwise, reductions, softmax and norms, fused groups

}  // namespace pelton::backend::cpu
