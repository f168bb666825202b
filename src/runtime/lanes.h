// SPDX-License-Identifier: Apache-2.0
// Branches of a program on a device that may run beside each other. Where a part (steps that are recorded as
// one) splits into independent branches of many short steps, the branches get lanes, and steps wait for those
// of other lanes that they depend on. Long steps fill the device by themselves, and a branch that is short
// costs more at its fork and join than it gains: those stay on the first lane. So does every step of a part
// that writes over its state (training) and has a long step: its kernels lose more than they gain
// (MobileNetV2, ResNet-50 and GPT-2 on an H200), a step of short ones is faster (an MLP).
#pragma once

#include "runtime/program.h"

namespace pelton::runtime {

class Region;

// Sets lane and waits of each step, and the order that follows from them. `least_ns`: what a branch must save
// by estimate; below 0: never beside others.
void assign_lanes(Program& program, const Region& region, const SymbolValues& symbols, int64_t least_ns,
                  bool writes_state);

}  // namespace pelton::runtime
