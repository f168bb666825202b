// SPDX-License-Identifier: Apache-2.0
// A plan made ready to run in this process: immutable and shared by any number of threads, but that one for a
// plan of another machine is followed by another (ExecutableOptions::retuner) when its kernels are timed.
// What a run changes (arena, bound buffers, state) is in a Context, used by one thread at a time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backend/kernel.h"
#include "ir/eval.h"
#include "runtime/plan.h"

namespace pelton::runtime {

class Retuner;

struct ExecutableOptions {
  int max_contexts = 0;             // 0: no limit
  int64_t wait_ns = -1;             // for a free context; -1: as long as it takes, 0: refuse at once (busy)
  int64_t memory_budget_bytes = 0;  // weights, kernels and contexts together; 0: no limit
  int max_graphs = 16;              // captured graphs kept by a context on a device (least recently used go)
  int max_programs = 64;  // sets of input sizes whose prepared kernels are kept (least recently used go)
  // On a device: what a branch of a graph must save, by estimate, to run beside others; below 0: one by one.
  int64_t least_branch_ns = 20000;
  bool check_memory = false;  // derive the memory plan a second time and compare
  // For a plan of another machine: gives it the choices that were timed here, and times the others on a
  // thread of its own while the plan runs (unless it is not to `retune`). Null: the first that take each
  // node. Must outlive the executable.
  const Retuner* retuner = nullptr;
  bool retune = true;
};

// Bytes, for the sizes in use so far.
struct Memory {
  int64_t weights = 0;         // constants of the plan (shared between plans by content)
  int64_t device_weights = 0;  // of them, those on the device
  int64_t packed = 0;          // weights that kernels re-ordered
  int64_t arena = 0;           // of one context
  int64_t scratch = 0;         // of one context; part of its arena
  int64_t contexts = 0;        // contexts that exist
  int64_t total() const { return weights + packed + contexts * arena; }
};

// A step that ran, reported to RunOptions::observe.
struct StepEvent {
  const ir::Graph& graph;
  ir::NodeId node;
  std::string_view implementation;  // that really ran
  int64_t start_ns, end_ns;
  int depth;  // 0: the plan's graph; more: sub-graphs
  // Valid during the call, which must not keep them: they borrow. Without RunOptions::plain_values they are
  // in their physical layout; those of kernels on a device then have type and dims, but no bytes (data() is
  // null).
  const std::vector<ir::HostValue>&inputs, &outputs;
  // A node that runs on slices of the batch is reported once for each, with that slice of its values.
  int64_t slice = 0, slices = 1;

  double flops() const;  // multiply-add counts two; 0 where the op table has no figure
  double bytes() const;  // of operands and results
};

// Where the time of a run on a device went; all in milliseconds, by the device's own clock.
struct PhaseTimes {
  double upload = 0, compute = 0, download = 0;
};

struct RunOptions {
  ir::RandomKey random;
  const std::atomic<bool>* cancel = nullptr;  // looked at between nodes
  int64_t deadline_ns = 0;                    // on the clock of now_ns(); 0: none
  std::function<void(const StepEvent&)> observe;
  bool plain_values = false;  // observe gets values in plain layout, at the price of copies
  // Devices only. The caller's stream, by its native handle: the run is enqueued there, and where every
  // result is bound in device memory nothing waits for it. Null: a stream of the context's own, waited for.
  void* stream = nullptr;
  PhaseTimes* phases = nullptr;  // filled if not null
};

class Region;
class Frame;
class Executable;

class Context {
 public:
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  // Inputs in graph order, types and sizes checked by name. The results own their memory. A context without
  // state goes over to the kernels that were timed meanwhile.
  std::vector<ir::HostValue> run(const std::vector<ir::HostValue>& inputs, const RunOptions& options = {});
  std::vector<Tensor> run_tensors(const std::vector<Tensor>& inputs, const RunOptions& options = {});

  // Bound runs touch no memory but the caller's and the context's own. Buffers stay the caller's and must
  // outlive the runs that use them; results must not overlap inputs. A bound output must have exactly the
  // size the run gives it (output_dims).
  void bind_input(size_t index, Dims dims, const void* data);
  void bind_output(size_t index, void* data, int64_t bytes);
  // The same in memory of the device that the plan runs on. A run whose addresses differ from those before is
  // not replayed from a captured graph until it is repeated.
  void bind_device_input(size_t index, Dims dims, const void* data);
  void bind_device_output(size_t index, void* data, int64_t bytes);
  void run_bound(const RunOptions& options = {});
  std::vector<ir::HostValue> outputs();  // of the last run_bound; results that were not bound move out
  // Sizes of the results for the inputs bound now; bad_shape if they depend on data.
  std::vector<Dims> output_dims();

  // State slots in graph order. They start at their initial values and change with each run.
  const Tensor& state(size_t slot);
  void set_state(size_t slot, Tensor value);
  void reset_state();
  // Until end_sharing() a slot that this executable's runs only read is that slot of another context, not
  // copied. The types must agree, on a device the device too. The other context stays and does not run
  // meanwhile.
  void share_state(size_t slot, Context& with, size_t of);
  void end_sharing();  // the slots that were shared have no value until they get one

 private:
  friend class Executable;
  Context(std::shared_ptr<const Executable> executable, std::unique_ptr<Frame> frame);
  void follow();
  bool ready(const RunOptions& options);  // false: the run was done by the guard-free variant
  std::shared_ptr<const Executable> executable_;
  std::unique_ptr<Frame> frame_;
};

class Executable : public std::enable_shared_from_this<Executable> {
 public:
  // `registry` must outlive the executable. An implementation that the plan names and this process lacks, or
  // that refuses on `target`, is replaced by the first that takes the node; notes() says so. On another
  // machine than the plan's all are chosen anew.
  static std::shared_ptr<const Executable> create(std::shared_ptr<const Plan> plan,
                                                  const backend::Registry& registry,
                                                  const device::Target& target,
                                                  const ExecutableOptions& options = {});
  ~Executable();

  const Plan& plan() const { return *plan_; }
  const ir::Graph& graph() const { return plan_->graph; }
  const device::Target& target() const { return target_; }
  device::Device* device() const { return device_.get(); }  // null on the CPU
  std::shared_ptr<device::Device> shared_device() const { return device_; }
  // Those that run here and what there is to say about them; of contexts taken from now on.
  const std::vector<Choice>& choices() const { return current().choices_; }
  const std::vector<std::string>& notes() const { return current().notes_; }
  bool retuning() const;          // kernels are being timed
  void wait_until_tuned() const;  // until they are not

  // From the pool; goes back when destroyed. `busy` if none is free within wait_ns.
  Context context() const;
  // run() on a context of the pool.
  std::vector<ir::HostValue> run(const std::vector<ir::HostValue>& inputs,
                                 const RunOptions& options = {}) const;
  // Prepares kernels and plans memory for these input sizes without running; used by memory reports.
  void prepare(const std::vector<Dims>& input_dims) const;
  Memory memory() const;
  // Addresses of the constants whose plain bytes are read when what was prepared so far runs.
  std::set<const void*> plain_reads() const;

 private:
  friend class Context;
  struct Pool;
  struct Retuning;
  Executable(std::shared_ptr<const Plan> plan, const backend::Registry& registry,
             const device::Target& target, const ExecutableOptions& options);
  Context take(int64_t wait_ns) const;
  int64_t choose_anew(const std::string& why);  // nodes that are worth timing
  void start_retuning();
  std::shared_ptr<const Executable> follower() const;  // null: this one is the last
  const Executable& current() const;
  void resolve(std::vector<Choice>& choices, const ir::Graph& graph, const device::Target& target);
  const Executable& unguarded() const;      // made on first need
  std::shared_ptr<device::Device> device_;  // null on the CPU
  void give_back(std::unique_ptr<Frame> frame) const;

  std::shared_ptr<const Plan> plan_;
  const backend::Registry& registry_;
  device::Target target_;
  ExecutableOptions options_;
  std::vector<Choice> choices_;
  std::vector<std::string> notes_;
  std::unique_ptr<Region> region_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Retuning> retuning_;  // stopped before the rest goes
};

}  // namespace pelton::runtime
