// SPDX-License-Identifier: Apache-2.0
// A frame whose kernels run on a device with memory of its own. Operands, results and the arena lie there;
// steps that the device does not take run on the host, on copies that are made when they are needed and only
// then.
//
// Steps between two steps of the host are a part. A part is enqueued step by step the first time; when the
// same program runs on the same addresses again it is recorded, and from then on played as one. Inputs and
// results that are not bound in device memory go through buffers of the frame, whose addresses do not change.
#pragma once

#include <list>

#include "runtime/frame.h"

namespace pelton::runtime {

class DeviceFrame final : public Frame {
 public:
  explicit DeviceFrame(const Region& region);
  ~DeviceFrame() override;

  void set_input(size_t index, ir::HostValue value) override;
  void bind_output(size_t index, void* data, int64_t bytes) override;
  void bind_device_input(size_t index, Dims dims, const void* data) override;
  void bind_device_output(size_t index, void* data, int64_t bytes) override;
  void run(const RunOptions& options, const SymbolValues& outer = {}) override;
  ir::HostValue input(size_t index) override;
  void adopt_outputs(std::vector<ir::HostValue> outputs) override;
  void unbind() override;
  void take_over(Frame& from) override;
  const Tensor& state(size_t slot) override;
  void set_state(size_t slot, Tensor value) override;
  void reset_state() override;
  void* settled_state(size_t slot) override;
  int64_t arena_bytes() const override;

 private:
  struct Part {
    uint32_t first, last;  // range of the program's steps
    bool host;             // one step, on the host
    bool recordable;
  };
  // A program with its operands resolved to device addresses.
  struct Ready {
    std::shared_ptr<const Program> program;
    uint64_t arena_made = 0;  // the arena that the addresses point into
    std::vector<void*> addresses;
    std::vector<uint32_t> moving;  // refs whose address may differ in each run
    std::vector<Part> parts;
    std::vector<std::pair<ir::ValueId, void*>> in_arena;  // values that its steps put there
  };
  // What was recorded of a program on certain addresses.
  struct Played {
    std::shared_ptr<const Program> program;
    std::vector<void*> addresses;  // of the moving refs
    bool recorded = false;
    std::vector<std::unique_ptr<device::Recording>> parts;
  };
  struct Download {
    ir::ValueId root;
    int64_t bytes = 0, pinned = -1;  // offset in the pinned buffer, or -1: straight into the tensor
  };

  Ready& ready(size_t segment);
  void run_segment(size_t segment, const RunOptions& options);
  void run_part(const Ready& ready, const Part& part, const RunOptions& options);
  void enqueue(const Ready& ready, const Step& step, device::Stream& stream, const RunOptions& options);
  void grow_device_arena(int64_t bytes);
  void recover();         // after an error in a run
  void poison_results();  // of the run before, so that what a kernel leaves out shows

  // device_recording.cc
  Played& played(const Ready& ready);
  // Like run_part, into a recording of the stream, its lanes beside each other.
  void record_part(const Ready& ready, const Part& part, const RunOptions& options);
  device::Event& lane_event();  // that nobody of this part has

  // device_observe.cc
  void run_observed(const Ready& ready, const Step& step, const RunOptions& options);
  void report_sizes(const Ready& ready, const Step& step, int64_t start_ns, int64_t end_ns,
                    const RunOptions& options) const;
  std::string places() const;  // the kernels that may have failed, for a message

  // device_host_step.cc
  void run_on_host(const Ready& ready, const Step& step, const RunOptions& options);
  void host_addresses(const Ready& ready, const Step& step, bool results);
  void fetch(const std::vector<ir::ValueId>& roots);  // values of this run, to host_; waits

  // device_transfer.cc
  void upload_inputs(const ir::RandomKey& random);
  void fetch_input(size_t index);
  void download_results();
  void finish_outputs();
  void check_faults();  // after waiting
  void clear_faults();
  void* device_address(const Ref& ref, bool needed);
  void* result_buffer(ir::ValueId root, int64_t bytes);
  ir::HostValue host_buffer(ir::ValueId root) const;
  int64_t bytes_of(ir::ValueId root) const;
  // A computed value whose bytes host_ does not have.
  bool on_device_only(ir::ValueId root) const;

  // device_state.cc
  void upload_state();
  void* state_memory(size_t slot, int64_t bytes);  // of a slot that owns storage, at least this large
  void forget_host_state();
  void finish_state();

  std::shared_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> own_stream_, adopted_;
  device::Stream* stream_ = nullptr;  // of the present run
  device::Memory device_arena_, empty_, staging_in_, staging_out_;
  device::Memory faults_;  // pinned: a word for each node, see device/fault.h
  device::Memory key_;     // RunArgs::random_on_device
  ir::RandomKey key_there_;
  bool key_known_ = false;
  std::unique_ptr<device::Event> staged_;  // behind the last copies out of staging_in_
  bool staged_pending_ = false;            // on a stream that the run did not wait for
  uint64_t arena_made_ = 0;
  std::vector<device::Memory> input_memory_;  // by input
  // State lies in flat buffers (state_layout.h); a slot without a place there, or that grew, in memory of its
  // own.
  struct StatePlace {
    int32_t buffer = -1;
    int64_t offset = 0, bytes = 0;
  };
  std::vector<device::Memory> state_buffers_, own_state_;  // by buffer of the layout, by slot
  std::vector<StatePlace> state_place_;                    // by slot
  std::vector<void*> state_at_;                            // by slot that owns storage, once it is there
  std::vector<const void*> device_inputs_;                 // bound by the caller, by input
  std::vector<Bound> device_outputs_;                      // likewise, by output
  std::vector<device::Memory> result_memory_;              // by value
  // By value, of the present run: where its root lies on the device (null: nowhere yet), and whether host_
  // has its bytes.
  std::vector<void*> device_at_;
  std::vector<bool> on_host_;
  std::vector<bool> state_on_host_, state_on_device_;  // by slot that owns storage
  std::vector<Ready> ready_;                           // by segment
  std::list<Played> played_;                           // most recently used first
  Loaded host_view_;                                   // operands of the present host step
  Tensor host_scratch_;
  std::unique_ptr<device::Event> marks_[4], step_begin_, step_end_;
  std::vector<std::unique_ptr<device::Stream>> lanes_;  // beside the first, while a part is recorded
  std::vector<std::unique_ptr<device::Event>> lane_events_;
  size_t lane_events_used_ = 0;
};

}  // namespace pelton::runtime
