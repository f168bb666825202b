// SPDX-License-Identifier: Apache-2.0
// The CPU back end: oneDNN where it is there, own SIMD kernels, plain movement kernels.
#pragma once

#include "backend/kernel.h"

namespace pelton::backend {

// Adds every CPU implementation this build has, best first.
void register_cpu(Registry& registry);

}  // namespace pelton::backend
