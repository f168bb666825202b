// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/register.h"

#include "backend/cpu/implementations.h"

namespace pelton::backend {

void register_cpu(Registry& registry) {
#if PELTON_HAVE_HWY
  cpu::add_tile_programs(registry);
#endif
}

}  // namespace pelton::backend
