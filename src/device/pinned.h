// SPDX-License-Identifier: Apache-2.0
// Which host memory a device copies from without a stop between: what a device::Memory holds pinned. So that
// whoever uploads a tensor need not copy it first, wherever it was made.
#pragma once

#include <cstdint>

namespace pelton::device {

// Whether these bytes lie in one such Memory of this process, of whichever device.
bool is_pinned(const void* at, int64_t bytes);

}  // namespace pelton::device
