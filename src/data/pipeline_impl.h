// SPDX-License-Identifier: Apache-2.0
// What a pipeline is made of: a run's description in two parts, its batches in flight, and how many of them
// there may be.
#pragma once

#include <deque>
#include <limits>

#include "data/making.h"
#include "data/pipeline.h"

namespace pelton::data {

// A run's description in two parts, and what it is known by.
struct PipelineParts {
  PipelineParts(const PipelineSpec& spec, const Source& source, const RunOptions& o);
  PipelineSpec host, graph;
  std::string field;     // that the graph takes
  std::string identity;  // the same wherever the cut is
};

struct Pipeline::Impl {
  Impl(const PipelineSpec& spec, std::shared_ptr<const Source> source, RunOptions o);

  // Learns the shape of a sample from the first good one, and how many batches fit the budget.
  void learn_plan();
  // How many batches may be in flight, the one that the consumer waits for among them.
  void set_window();
  // A batch takes so many bytes: as the plan says, or as one of larger samples turned out. From now on no
  // more of them are in flight than the budget holds.
  void keep_budget(int64_t bytes);
  void enqueue();            // batches, until the window is full
  void check_limit() const;  // of bad samples

  RunOptions options;
  PipelineParts parts;
  std::shared_ptr<Making> core;
  std::shared_ptr<BufferPool> buffers;
  std::unique_ptr<DevicePass> pass;                   // with a stage on the device
  std::deque<std::shared_ptr<Work>> works;            // in flight, oldest first
  int64_t epoch = 0, step = 0;                        // of the batch that next() gives next
  int64_t next_epoch = 0, next_step = 0;              // of the batch that is queued next
  int64_t fit = std::numeric_limits<int64_t>::max();  // batches within the memory budget
  int64_t window = 0, batch_bytes = 0, batches = 0, wait_ns = 0;

  // When, by which thread, and at which of its CPU times next() last gave a batch.
  struct Left {
    int64_t ns = 0, cpu_ns = 0;
    std::thread::id thread;
  } left;
  // The consumer asks for a batch: how long it was away, and how much of that on the CPU.
  std::pair<int64_t, int64_t> come(int64_t now) const;
  void leave(std::pair<int64_t, int64_t> away);
};

}  // namespace pelton::data
