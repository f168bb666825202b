// SPDX-License-Identifier: Apache-2.0
// Where the state of a plan lies on a device: flat buffers of what is of one kind and type and is written
// alike. What one node updates in segments (ir/segments.h) is a buffer for each of its results: the
// parameters, each state of the optimizer, the moving averages, the lower forms; what nothing changes has
// buffers of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "runtime/memory_plan.h"

namespace pelton::runtime {

inline constexpr int64_t kStateAlignment = kDeviceAlignment;  // bytes, of a segment

// Name, logical shape and physical layout are those of the slot.
struct StateSegment {
  size_t slot = 0;
  int64_t offset = 0, bytes = 0;
};

struct StateBuffer {
  ir::SlotKind kind = ir::SlotKind::parameter;
  DType dtype = DType::f32;
  bool changes = false;
  std::vector<StateSegment> segments;  // by offset
  int64_t bytes = 0;                   // a multiple of kStateAlignment times the number of shards
};

// Slots of known sizes and at least one dimension; others, and those tied to another, are in no buffer.
std::vector<StateBuffer> lay_out_state(const ir::Graph& graph, int64_t shards = 1);

}  // namespace pelton::runtime
