// SPDX-License-Identifier: Apache-2.0
// A transposed convolution over a long line as one convolution: with stride s, result s*q + r is a sum over
// few inputs before q, so s phases r of it are s times the channels of a convolution with stride 1, and
// channels last they lie in memory as the result does. The library's own transposed convolution looks at each
// length of a row when it is made, for each instruction set: seconds for a second of sound.
#pragma once

#include "backend/group.h"
#include "backend/kernel.h"

namespace pelton::backend::cpu::onednn {

// Null where this does not apply: short lines, other dims, groups, dilations, operands that are not constant.
std::unique_ptr<Kernel> prepare_phases(const Group& group, const Instance& instance);

}  // namespace pelton::backend::cpu::onednn
