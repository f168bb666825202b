// SPDX-License-Identifier: Apache-2.0
// A segment of a region at exact sizes: kernels, where each operand lies, how much arena it takes. Immutable
// and shared by every context that runs these sizes.
#pragma once

#include <memory>
#include <vector>

#include "backend/stateful.h"
#include "runtime/memory_plan.h"

namespace pelton::runtime {

enum class Place : uint8_t {
  none,      // absent inputs, tokens
  constant,  // index: of the region's constants
  input,     // index: graph input
  slot,      // index: state slot, its value before the run
  host,      // index: value; a buffer or object of its own (results of the run, what later segments read,
             // sizes that depend on data, sequences)
  arena,     // offset in the arena
};

struct Ref {
  Place place = Place::none;
  uint32_t index = 0;
  int64_t offset = 0;
  ir::ValueId value;
  Dims dims;          // of tensors whose size is known when the segment is prepared
  int64_t bytes = 0;  // likewise, in the physical layout
  bool read = true;   // false: an operand whose bytes its kernel does not look at
  // Of an operand that enters or leaves a stretch run in slices: how far its address moves from one slice to
  // the next. `dims` and `bytes` are those of the whole value; values that live inside have those of a slice.
  int64_t slice_bytes = 0;
};

struct Step {
  uint32_t position = 0;  // in graph.order()
  ir::NodeId node;
  const backend::Kernel* kernel = nullptr;      // null: the reference function
  const backend::Stateful* stateful = nullptr;  // the same kernel, where it keeps memory from run to run
  bool on_device = false, capturable = false;
  int lane = 0;            // of the recording that it is part of (lanes.h)
  std::vector<int> waits;  // steps of other lanes that it starts after
  uint32_t first_in = 0, in_count = 0, first_out = 0, out_count = 0;  // in Program::refs
  int64_t scratch_offset = 0, scratch_bytes = 0;
};

struct Program {
  std::vector<Step> steps;
  std::vector<Ref> refs;
  std::vector<std::shared_ptr<const backend::Kernel>> kernels;  // by step; null: the reference function
  std::vector<uint32_t> host_results;  // refs of tensors to allocate before the steps run
  Order order;
  int64_t arena_bytes = 0, scratch_bytes = 0;  // scratch: the largest single one, inside the arena
  int64_t peak_bytes = 0;                      // lower bound of any plan for this order
  int64_t touched_bytes = 0;                   // of all operands and results together

  // Steps [first, last) run `count` times, each time on `rows` items of the batch (batch_slices.h).
  struct Slices {
    uint32_t first = 0, last = 0;
    int64_t rows = 0, count = 1;
    std::vector<uint32_t> moved;  // refs with slice_bytes
    bool holds(size_t step) const { return count > 1 && step >= first && step < last; }
  } slices;

  // Arena ranges that no later step reads, by the step after which that holds; for the poison mode.
  struct Freed {
    uint32_t step;
    int64_t offset, bytes;
  };
  std::vector<Freed> freed;
};

}  // namespace pelton::runtime
