// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace pelton::cli {

int64_t peak_memory_bytes();  // most resident memory of this process so far (VmHWM)

}  // namespace pelton::cli
