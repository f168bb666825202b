// SPDX-License-Identifier: Apache-2.0
// Steps on their way on a device: while one runs, the inputs of the next are copied from pinned memory on a
// stream of their own, and its work is enqueued. Results come back when somebody asks for them.
#pragma once

#include <memory>
#include <vector>

#include "runtime/executable.h"

namespace pelton::train {

class StepQueue {
 public:
  static constexpr size_t kMost = 2;  // steps on their way at once

  // Both must outlive the queue. The sizes of inputs and results must be fixed.
  StepQueue(const runtime::Executable& executable, runtime::Context& context);
  ~StepQueue();  // waits for what is on its way

  // Enqueues a step; fewer than kMost are on their way. The tensors are copied before it returns. `resident`:
  // every batch is the same, so that a buffer that holds one already is not filled again.
  void start(const std::vector<Tensor>& inputs, const ir::RandomKey& random, bool resident = false);
  size_t pending() const { return pending_; }
  // Waits for the oldest step; its results.
  std::vector<Tensor> finish();
  // Waits for all, drops their results and takes the context out of the queue's buffers, for runs of other
  // kinds.
  void clear();

 private:
  // Buffers of one step. Its inputs stay where they are until finish() has seen it done.
  struct Lane {
    device::Memory staged, inputs, outputs, results;  // pinned, device, device, pinned
    std::unique_ptr<device::Event> uploaded, done;
  };
  struct Part {
    DType dtype;
    Dims dims;
    int64_t offset, bytes;
  };
  void upload(Lane& lane, const std::vector<Tensor>& inputs);
  static std::vector<Part> layout(const ir::Graph& g, const std::vector<ir::ValueId>& values, int64_t& bytes);

  const runtime::Executable& executable_;
  runtime::Context& context_;
  std::vector<Part> inputs_, outputs_;
  int64_t input_bytes_ = 0, output_bytes_ = 0;
  std::unique_ptr<device::Stream> compute_, copy_;
  std::vector<Lane> lanes_;
  size_t next_ = 0, pending_ = 0;
};

}  // namespace pelton::train
