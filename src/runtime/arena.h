// SPDX-License-Identifier: Apache-2.0
// Where the values of a program lie in its arena: the plan, and the check that derives it anew.
#pragma once

#include "runtime/program.h"

namespace pelton::runtime {

class Region;

// Fills the offsets of arena operands and scratch, the size of the arena and the freed ranges. A step may
// write over an input where the alias rule of its op allows it and nothing reads that input later.
void plan_arena(Program& program, const Region& region);

// Derives from the steps and their operands alone that no two values that are alive at once share arena
// bytes, except where a step writes in place as the alias rule of its op allows. Internal error otherwise.
void check_memory(const Program& program, const Region& region);

}  // namespace pelton::runtime
