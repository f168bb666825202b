// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/tile/nest.h"

#include <algorithm>

namespace pelton::backend::cpu {

std::vector<Loop> loops_of(const Dims& space, const ir::Layout& layout, const ir::Ints& last) {
  std::vector<Loop> loops;
  const size_t rank = space.size();
  auto whole = [&](size_t axis) { loops.push_back({axis, space[axis], Loop::whole}); };
  if (layout.is_plain() || rank < 2) {
    for (size_t a = 0; a < rank; ++a) whole(a);
  } else {
    const bool blocked = layout.kind == ir::Layout::Kind::blocked;
    whole(0);
    if (blocked) loops.push_back({1, space[1] / layout.block, Loop::block_index});
    for (size_t a = 2; a < rank; ++a) whole(a);
    if (blocked)
      loops.push_back({1, layout.block, Loop::in_block});
    else
      whole(1);
  }
  std::stable_partition(loops.begin(), loops.end(), [&](const Loop& l) {
    return std::find(last.begin(), last.end(), static_cast<int64_t>(l.axis)) == last.end();
  });
  return loops;
}

std::vector<int64_t> strides_of(const std::vector<Loop>& loops, const Dims& dims, const ir::Layout& layout) {
  const size_t rank = dims.size();
  std::vector<int64_t> by_axis(rank, 0);
  int64_t block = 1, block_index = 0;
  if (layout.is_plain() || rank < 2) {
    by_axis = row_major_strides(dims);
  } else if (layout.kind == ir::Layout::Kind::channels_last) {
    by_axis[1] = 1;
    int64_t step = dims[1];
    for (size_t a = rank; a-- > 2; step *= dims[a]) by_axis[a] = step;
    by_axis[0] = step;
  } else {
    block = layout.block;
    by_axis[1] = 1;
    int64_t step = block;
    for (size_t a = rank; a-- > 2; step *= dims[a]) by_axis[a] = step;
    block_index = step;
    by_axis[0] = step * ((dims[1] + block - 1) / block);
  }
  std::vector<int64_t> out;
  int64_t space_block = 1;
  for (const Loop& l : loops)
    if (l.part == Loop::in_block) space_block = l.size;
  for (const Loop& l : loops) {
    if (dims[l.axis] == 1)
      out.push_back(0);
    else if (l.part == Loop::block_index)
      out.push_back(block_index ? block_index : by_axis[1] * space_block);
    else
      out.push_back(by_axis[l.axis]);
  }
  return out;
}

void collapse(Dims& sizes, std::vector<std::vector<int64_t>*> strides) {
  auto drop = [&](size_t i) {
    sizes.erase(sizes.begin() + static_cast<int64_t>(i));
    for (auto* s : strides) s->erase(s->begin() + static_cast<int64_t>(i));
  };
  for (size_t i = sizes.size(); i-- > 0;)
    if (sizes[i] == 1) drop(i);
  for (size_t i = sizes.size(); i-- > 1;) {
    const bool together = std::all_of(strides.begin(), strides.end(),
                                      [&](auto* s) { return (*s)[i - 1] == (*s)[i] * sizes[i]; });
    if (!together) continue;
    for (auto* s : strides) (*s)[i - 1] = (*s)[i];
    sizes[i - 1] *= sizes[i];
    drop(i);
  }
}

}  // namespace pelton::backend::cpu
