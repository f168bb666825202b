// SPDX-License-Identifier: Apache-2.0
// Runs of a plan by one thread: inputs, bound buffers and state, by name and index.
#include "runtime/executable.h"
#include "runtime/frame.h"

namespace pelton::runtime {

using namespace ir;

namespace {

void require_index(size_t index, size_t count, std::string_view kind) {
  if (index >= count) fail(ErrorCode::usage, cat("the plan has ", count, " ", kind, ", got index ", index));
}

}  // namespace

Context::Context(std::shared_ptr<const Executable> executable, std::unique_ptr<Frame> frame)
    : executable_(std::move(executable)), frame_(std::move(frame)) {}
Context::~Context() {
  if (frame_) executable_->give_back(std::move(frame_));
}

Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&& other) noexcept {
  if (this != &other) {
    if (frame_) executable_->give_back(std::move(frame_));
    executable_ = std::move(other.executable_);
    frame_ = std::move(other.frame_);
  }
  return *this;
}

bool Context::ready(const RunOptions& options) {
  const Graph& g = executable_->graph();
  if (g.guards.empty()) return true;
  frame_->find_sizes({});
  if (!frame_->breaks_a_guard()) return true;
  std::vector<HostValue> inputs;
  for (size_t i = 0; i < g.inputs.size(); ++i) inputs.push_back(frame_->input(i));
  Context other = executable_->unguarded().context();
  for (size_t i = 0; i < g.slots.size(); ++i) other.set_state(i, state(i));
  frame_->adopt_outputs(other.run(inputs, options));
  for (size_t i = 0; i < g.slots.size(); ++i) set_state(i, other.state(i));
  return false;
}

std::vector<HostValue> Context::run(const std::vector<HostValue>& inputs, const RunOptions& options) {
  follow();
  const Graph& g = executable_->graph();
  if (inputs.size() != g.inputs.size())
    fail(ErrorCode::usage, cat("the plan takes ", g.inputs.size(), " inputs, got ", inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) frame_->set_input(i, inputs[i]);
  if (ready(options)) frame_->run(options);
  return frame_->take_outputs();
}

std::vector<Tensor> Context::run_tensors(const std::vector<Tensor>& inputs, const RunOptions& options) {
  std::vector<HostValue> values(inputs.begin(), inputs.end());
  std::vector<Tensor> out;
  for (HostValue& v : run(values, options)) out.push_back(std::move(v.tensor));
  return out;
}

void Context::bind_input(size_t index, Dims dims, const void* data) {
  const Graph& g = executable_->graph();
  require_index(index, g.inputs.size(), "inputs");
  const Type& type = g.type(g.inputs[index]);
  if (!type.is_tensor() || type.dtype == DType::string)
    fail(ErrorCode::bad_type, cat("an input of type ", type.str(), " cannot be bound"),
         cat("input '", g[g.inputs[index]].name, "'"));
  frame_->set_input(index, Tensor::borrow(type.dtype, std::move(dims), data, nullptr));
}

void Context::bind_device_input(size_t index, Dims dims, const void* data) {
  require_index(index, executable_->graph().inputs.size(), "inputs");
  frame_->bind_device_input(index, std::move(dims), data);
}

void Context::bind_device_output(size_t index, void* data, int64_t bytes) {
  require_index(index, executable_->graph().outputs.size(), "outputs");
  frame_->bind_device_output(index, data, bytes);
}

void Context::bind_output(size_t index, void* data, int64_t bytes) {
  require_index(index, executable_->graph().outputs.size(), "outputs");
  frame_->bind_output(index, data, bytes);
}

void Context::run_bound(const RunOptions& options) {
  follow();
  if (ready(options)) frame_->run(options);
}

std::vector<HostValue> Context::outputs() {
  return frame_->take_outputs();
}

std::vector<Dims> Context::output_dims() {
  const Graph& g = executable_->graph();
  frame_->find_sizes({});
  std::vector<Dims> out;
  for (ValueId v : g.outputs) out.push_back(eval(g.type(v).shape, frame_->symbols()));
  return out;
}

const Tensor& Context::state(size_t slot) {
  return frame_->state(slot);
}

void Context::set_state(size_t slot, Tensor value) {
  frame_->set_state(slot, std::move(value));
}

void Context::reset_state() {
  frame_->reset_state();
}

void Context::share_state(size_t slot, Context& with, size_t of) {
  frame_->share_state(slot, *with.frame_, of);
}

void Context::end_sharing() {
  frame_->end_sharing();
}

}  // namespace pelton::runtime
