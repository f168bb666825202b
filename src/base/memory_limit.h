// SPDX-License-Identifier: Apache-2.0
// How much memory the machine has.
#pragma once

#include <cstdint>

namespace pelton {

int64_t physical_memory_bytes();  // 0: unknown

}  // namespace pelton
