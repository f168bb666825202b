// SPDX-License-Identifier: Apache-2.0
// Offsets in one arena for blocks that live from a writer to their last readers. Two blocks share bytes only
// if every user of one has finished before the other's writer starts.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/order.h"

namespace pelton::runtime {

inline constexpr int64_t kArenaAlignment = 64;
inline constexpr int64_t kDeviceAlignment =
    256;  // libraries on devices ask for it, cuBLASLt for its workspace

struct Block {
  int64_t bytes = 0;
  int writer = 0;            // the step that first writes it
  std::vector<int> readers;  // steps that use it later; in-place writers among them
};

// Blocks that lie one behind the other, each still for its own lifetime: what flat buffers are made of.
struct Row {
  std::vector<size_t> blocks;
  std::vector<int64_t> offsets;  // of each from the first, multiples of the alignment, in order
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // one a block, multiples of the alignment
  int64_t bytes = 0;             // of the arena
};

// A block is in one row at most.
MemoryPlan plan_memory(const std::vector<Block>& blocks, const Order& order,
                       const std::vector<Row>& rows = {}, int64_t alignment = kArenaAlignment);
// What no plan can go below: the most bytes of blocks in use at one step of a single-lane order.
int64_t peak_bytes(const std::vector<Block>& blocks, const Order& order);

}  // namespace pelton::runtime
