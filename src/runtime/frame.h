// SPDX-License-Identifier: Apache-2.0
// The changing half of a region: its arena, bound buffers, state and the values of the present run. One
// thread at a time.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/region.h"

namespace pelton::runtime {

// Runs on the host. DeviceFrame (device_frame.h) runs on a device with memory of its own.
class Frame {
 public:
  // The region must outlive the frame.
  static std::unique_ptr<Frame> make(const Region& region);
  explicit Frame(const Region& region);
  virtual ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  // Checks kind, dtype and rank; sizes are checked when the frame runs.
  virtual void set_input(size_t index, ir::HostValue value);
  virtual void bind_output(size_t index, void* data, int64_t bytes);  // data null: unbound
  // Buffers in device memory; a frame of the host has a usage error for them.
  virtual void bind_device_input(size_t index, Dims dims, const void* data);
  virtual void bind_device_output(size_t index, void* data, int64_t bytes);
  // `outer`: sizes of symbols known from the graph around a sub-graph.
  virtual void run(const RunOptions& options, const SymbolValues& outer = {});
  // On the host; of an input that was bound in device memory, a copy.
  virtual ir::HostValue input(size_t index) { return inputs_[index]; }
  // Takes the results of a run that another frame did on the same inputs.
  virtual void adopt_outputs(std::vector<ir::HostValue> outputs);
  virtual void unbind();
  // The inputs and bound results of a frame of the same graph.
  virtual void take_over(Frame& from);
  // Results of the last run; a bound result borrows the bound buffer. Moves them out.
  virtual std::vector<ir::HostValue> take_outputs();
  // Finds the sizes of the run from the inputs set now; throws where they do not fit the graph.
  void find_sizes(const SymbolValues& outer);
  const SymbolValues& symbols() const { return symbols_; }
  bool breaks_a_guard() const;  // after find_sizes()

  virtual const Tensor& state(size_t slot);
  virtual void set_state(size_t slot, Tensor value);
  virtual void reset_state();
  // Until end_sharing() this slot, which no run of this frame changes, is that slot of another frame, which
  // stays where it is and does not run meanwhile. Only if it has the same type and lies on the same device.
  void share_state(size_t slot, Frame& with, size_t of);
  void end_sharing();
  // Of a slot that lies on a device, up to date; its frame has nothing on its way there. Null: on the host.
  virtual void* settled_state(size_t slot);
  virtual int64_t arena_bytes() const;  // sub-graphs included

 protected:
  // A program with its operands resolved to addresses.
  struct Loaded {
    std::shared_ptr<const Program> program;
    const std::byte* arena = nullptr;  // that the addresses point into
    std::vector<void*> addresses;      // one a ref of the program
    std::vector<uint32_t> moving;      // refs whose address may differ in each run
  };
  struct Bound {
    void* data = nullptr;
    int64_t bytes = 0;
  };

  // Read as f32 or f64 this is a NaN, as an index it is out of any range.
  static constexpr uint8_t kPoison = 0xFF;
  // Below this a run does not enter the thread pool: kernels this small work on the calling thread.
  static constexpr int64_t kSmallRunBytes = 64 << 10;

  Loaded& load(size_t segment);
  void run_segment(size_t segment, const RunOptions& options);
  void run_steps(Loaded& loaded, const RunOptions& options);
  void move_to_slice(Loaded& loaded, int64_t slice);
  void run_step(const Loaded& loaded, const Step& step, int64_t slice, const RunOptions& options);
  void run_kernel(const Loaded& loaded, const Step& step, const RunOptions& options);
  void run_prepared(const Step& step, const backend::RunArgs& args);  // a kernel of the host
  void run_reference(const Loaded& loaded, const Step& step, const RunOptions& options);
  // `slice`: of a step that runs in slices, else -1.
  void report(const Loaded& loaded, const Step& step, int64_t start_ns, int64_t end_ns,
              const RunOptions& options, int64_t slice = -1);
  void allocate_results(const Program& program);
  void finish();
  // For messages.
  std::string input_place(size_t index) const;
  std::string output_place(size_t index) const;
  void require_bound_size(size_t output, const Bound& bound, DType dtype, const Dims& dims,
                          int64_t bytes) const;
  void copy_to_bound(size_t output);
  void check_interrupts(const Step& step, const RunOptions& options) const;
  void* address(const Ref& ref);
  // The same for a value that kernels compute at `computed`; what is empty has some address, too.
  void* address(const Ref& ref, const void* computed);
  void forget_kept_memory();            // of sub-graphs too
  void* kept_memory(const Step& step);  // of a stateful kernel; zeros at first
  ir::HostValue value_of(const Ref& ref, void* at, bool plain, int64_t rows = 0) const;
  ir::HostValue result(ir::ValueId v);
  const Tensor& own_state(size_t slot) const;  // of a slot that owns storage; an error where it was shared
  void own(ir::HostValue& value, const std::vector<ir::HostValue>& inputs) const;
  void grow_arena(int64_t bytes);
  void drop_arena();
  // Before a segment: the checks of sizes that the segments before it told.
  void require_late_checks(size_t segment);

  const Region& region_;
  const bool poison_;
  std::vector<ir::HostValue> inputs_;
  std::vector<Bound> bound_;           // by graph output
  std::vector<int32_t> bound_root_;    // by value: graph output whose buffer it may use, or -1
  std::vector<ir::HostValue> host_;    // by value: Place::host
  std::vector<Tensor> state_, spare_;  // by slot; spare: a buffer for the next value
  std::vector<size_t> owner_;          // by slot: the slot whose storage it shares
  struct Shared {
    Frame* with = nullptr;
    size_t slot = 0;
  };
  std::vector<Shared> shared_;  // by slot
  std::vector<ir::HostValue> outputs_;
  std::vector<Loaded> loaded_;  // by segment
  SymbolValues symbols_, base_symbols_, outer_;
  std::vector<const ir::Fact*> late_checks_,
      open_checks_;  // of sizes that the run learns; not asked yet in this run
  bool sizes_known_ = false;
  std::byte* arena_ = nullptr;
  int64_t arena_bytes_ = 0;
  std::unordered_map<const Region*, std::unique_ptr<Frame>> bodies_;
  std::unordered_map<uint32_t, Tensor> kept_memory_;  // by node: of its stateful kernel
};

}  // namespace pelton::runtime
