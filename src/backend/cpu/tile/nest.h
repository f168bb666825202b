// SPDX-License-Identifier: Apache-2.0
// The loop nest of a program: the order in which the iteration space is walked and the strides of every
// operand along it.
#pragma once

#include "backend/cpu/tile/program.h"

namespace pelton::backend::cpu {

// One loop of the nest before collapsing: an axis of the space, or the block part of its channel axis.
struct Loop {
  size_t axis = 0;
  int64_t size = 1;
  enum Part : uint8_t { whole, block_index, in_block } part = whole;
};
// The space in the order of `layout`; axes named by `last` come last.
std::vector<Loop> loops_of(const Dims& space, const ir::Layout& layout, const ir::Ints& last);
// Elements between neighbours along each loop, of a tensor whose dims have the space's rank (1: broadcast).
std::vector<int64_t> strides_of(const std::vector<Loop>& loops, const Dims& dims, const ir::Layout& layout);

// Merges loops that every operand walks as one. `strides` holds a vector for each operand.
void collapse(Dims& sizes, std::vector<std::vector<int64_t>*> strides);

}  // namespace pelton::backend::cpu
