// SPDX-License-Identifier: Apache-2.0
// A compiled step with its state: a graph from step.h, made ready to run.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/executable.h"
#include "train/step.h"
#include "train/step_queue.h"

namespace pelton::train {

class Program {
 public:
  // `deterministic`: no kernel chooses by timing among ways that round differently.
  Program(StepGraph step, const device::Target& target, const compiler::Options& options,
          const backend::Registry& registry, bool deterministic = false);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Results by name. Inputs in the order of the step's `inputs`.
  std::map<std::string, Tensor> run(const StepInputs& inputs, const ir::RandomKey& random);
  // The same in two halves, so that on a device the next run can be prepared while one is on its way: at most
  // most_running() runs are started and not finished. They finish in order.
  // `resident`: see StepQueue::start().
  void start(const StepInputs& inputs, const ir::RandomKey& random, bool resident = false);
  std::map<std::string, Tensor> finish();
  size_t running() const;
  size_t most_running() const;
  // The node whose result is the first with a value that is not finite when these inputs run, as "conv
  // 'layer1.conv1'"; empty if there is none. State stays as it is if the step's guard holds.
  std::string first_not_finite(const std::vector<Tensor>& inputs, const ir::RandomKey& random);

  // What its kernels chose by timing so far, by key; and choices that they are to make, known from before.
  std::map<std::string, std::string> tactics() const;
  void take_tactics(const std::map<std::string, std::string>& known);

  // One run, timed node by node: seconds by "implementation op".
  std::map<std::string, double> times(const std::vector<Tensor>& inputs, const ir::RandomKey& random);

  const std::vector<std::string>& inputs() const { return inputs_; }
  const std::vector<std::string>& trained() const { return trained_; }
  const runtime::Executable& executable() const { return *executable_; }

  bool has_state(const std::string& name) const { return slots_.count(name) != 0; }
  std::vector<std::string> state_names() const;
  const Tensor& state(const std::string& name) const { return context_.state(slots_.at(name)); }
  void set_state(const std::string& name, const Tensor& value);
  std::map<std::string, Tensor> all_state() const;
  // Until end_sharing() `name`, which this program only reads, is the state `of` of another program of the
  // same device, not a copy; that one stays and does not run meanwhile.
  void share_state(const std::string& name, Program& with, const std::string& of);
  void end_sharing() { context_.end_sharing(); }

 private:
  std::vector<std::string> inputs_, outputs_, trained_;
  std::shared_ptr<const runtime::Executable> executable_;
  std::unique_ptr<StepQueue> queue_;  // on a device; its stream outlives the context, which waits for it
  mutable runtime::Context context_;  // reading state may bring it over from a device
  std::deque<std::vector<Tensor>> finished_;   // on the host, which is done when start() returns
  std::map<std::string, size_t> slots_, low_;  // low_: lower forms of parameters, which follow them
};

}  // namespace pelton::train
