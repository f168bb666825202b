// SPDX-License-Identifier: Apache-2.0
// scan as a conditional node: its steps follow each other on the device.
#pragma once

#include "backend/kernel.h"

namespace pelton::backend::cuda {

void add_steps(Registry& registry);

}  // namespace pelton::backend::cuda
