// SPDX-License-Identifier: Apache-2.0
// What runs each node at given sizes.
#pragma once

#include <string>
#include <vector>

#include "runtime/executable.h"

namespace pelton::runtime {

// One name a node of executable.graph().order(): the choices, but where a kernel hands its node on at these
// input sizes (backend/ran_by.h) the one that takes it. Nodes behind a size that depends on data, or of sizes
// that break a guard, keep their choice. Prepares kernels.
std::vector<std::string> implementations_at(const Executable& executable, const backend::Registry& registry,
                                            const std::vector<Dims>& input_dims);

}  // namespace pelton::runtime
