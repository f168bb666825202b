// SPDX-License-Identifier: Apache-2.0
// Steps on their way on a device: while one runs, the inputs of the next are copied on a stream of their own,
// and its work is enqueued. Results come back when somebody asks for them.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "data/batch.h"
#include "runtime/executable.h"

namespace pelton::train {

// Inputs of a step: tensors on the host, and what a data pipeline has left in the device's memory.
struct StepInputs {
  StepInputs() = default;
  StepInputs(std::vector<Tensor> tensors) : host(std::move(tensors)) {}
  std::vector<Tensor> host;                       // undefined where the input is on the device
  std::map<size_t, data::DeviceField> on_device;  // by its place
  std::vector<Tensor> to_host() const;
};

class StepQueue {
 public:
  static constexpr size_t kMost = 2;  // steps on their way at once

  // Both must outlive the queue. The sizes of inputs and results must be fixed.
  StepQueue(const runtime::Executable& executable, runtime::Context& context);
  ~StepQueue();  // waits for what is on its way

  // Enqueues a step; fewer than kMost are on their way. Inputs in pinned memory (device/pinned.h) and on the
  // device are kept until the step has finished, others are copied before it returns. `resident`: every batch
  // is the same, so that a buffer that holds one already is not filled again.
  void start(const StepInputs& inputs, const ir::RandomKey& random, bool resident = false);
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
    std::vector<std::shared_ptr<const void>> kept;  // owners of what the copies on their way read
  };
  struct Part {
    DType dtype;
    Dims dims;
    int64_t offset, bytes;
  };
  void upload(Lane& lane, const StepInputs& inputs);
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
