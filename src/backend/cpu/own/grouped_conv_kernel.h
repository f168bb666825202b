// SPDX-License-Identifier: Apache-2.0
// The kernel behind cpu.grouped_conv, for what grouped_conv.cc accepts.
#pragma once

#include <memory>

#include "backend/group.h"
#include "backend/kernel.h"

namespace pelton::backend::cpu {

std::unique_ptr<Kernel> make_grouped_conv(const Group& group, const Instance& instance,
                                          const device::Target& target);

}  // namespace pelton::backend::cpu
