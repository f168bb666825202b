// SPDX-License-Identifier: Apache-2.0
#include "train/step_queue.h"

#include <cstring>

#include "base/thread_pool.h"
#include "device/pinned.h"

namespace pelton::train {

std::vector<Tensor> StepInputs::to_host() const {
  std::vector<Tensor> out = host;
  for (const auto& [place, field] : on_device) out[place] = field.to_host();
  return out;
}

namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kCopiedAtOnce = 4 << 20;  // by one thread

// Batches of pictures are large beside what one core moves.
void copy_bytes(std::byte* to, const void* from, int64_t bytes) {
  auto source = static_cast<const std::byte*>(from);
  parallel_for(0, bytes, kCopiedAtOnce, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, source + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace

std::vector<StepQueue::Part> StepQueue::layout(const ir::Graph& g, const std::vector<ir::ValueId>& values,
                                               int64_t& bytes) {
  std::vector<Part> parts;
  for (ir::ValueId v : values) {
    const ir::Type& type = g.type(v);
    std::optional<Dims> dims = as_dims(type.shape);
    PELTON_CHECK(type.is_tensor() && dims, "a step takes or yields ", type.str());
    parts.push_back({type.dtype, *dims, bytes, byte_size(type.dtype, element_count(*dims))});
    bytes += (parts.back().bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return parts;
}

StepQueue::StepQueue(const runtime::Executable& executable, runtime::Context& context)
    : executable_(executable), context_(context) {
  const ir::Graph& g = executable.graph();
  inputs_ = layout(g, g.inputs, input_bytes_);
  outputs_ = layout(g, g.outputs, output_bytes_);
  device::Device& device = *executable.device();
  device.activate();
  compute_ = device.make_stream();
  copy_ = device.make_stream();
}

StepQueue::~StepQueue() {
  try {
    executable_.device()->activate();
    copy_->synchronize();
    compute_->synchronize();
  } catch (const Error&) {
    // A lost device; the run has failed with it already.
  }
}

void StepQueue::upload(Lane& lane, const StepInputs& inputs) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Part& part = inputs_[i];
    const auto there = inputs.on_device.find(i);
    const data::DeviceField* const field = there == inputs.on_device.end() ? nullptr : &there->second;
    const Tensor& tensor = inputs.host[i];
    const DType dtype = field ? field->dtype : tensor.dtype();
    const Dims& dims = field ? field->dims : tensor.dims();
    if (dtype != part.dtype || dims != part.dims)
      fail(ErrorCode::bad_shape,
           cat("expected ", ir::Type::tensor(part.dtype, to_shape(part.dims)).str(), ", got ",
               ir::Type::tensor(dtype, to_shape(dims)).str()),
           cat("input ", i, " of the step"));
    if (part.bytes == 0) continue;
    std::byte* const to = lane.inputs.bytes_at(part.offset);
    if (field) {
      copy_->copy(to, field->memory.get(), part.bytes);
      lane.kept.push_back(field->memory);
    } else if (device::is_pinned(tensor.data(), part.bytes)) {
      copy_->upload(to, tensor.data(), part.bytes);
      lane.kept.push_back(std::make_shared<const Tensor>(tensor));
    } else {
      if (!lane.staged.get())
        lane.staged = {executable_.shared_device(), input_bytes_, "inputs of a step on their way",
                       device::Memory::Where::pinned};
      copy_bytes(lane.staged.bytes_at(part.offset), tensor.data(), part.bytes);
      copy_->upload(to, lane.staged.bytes_at(part.offset), part.bytes);
    }
  }
  copy_->record(*lane.uploaded);
  compute_->wait(*lane.uploaded);
}

void StepQueue::start(const StepInputs& inputs, const ir::RandomKey& random, bool resident) {
  PELTON_CHECK(pending_ < kMost && inputs.host.size() == inputs_.size(), pending_, " steps, ",
               inputs.host.size(), " inputs");
  std::shared_ptr<device::Device> device = executable_.shared_device();
  device->activate();
  bool filled = lanes_.size() > next_;
  if (!filled) {
    using Where = device::Memory::Where;
    Lane lane;
    lane.inputs = {device, input_bytes_, "inputs of a step"};
    lane.outputs = {device, output_bytes_, "results of a step"};
    lane.results = {device, output_bytes_, "results of a step on their way", Where::pinned};
    lane.uploaded = device->make_event(false);
    lane.done = device->make_event(false);
    lanes_.push_back(std::move(lane));
  }
  Lane& lane = lanes_[next_];
  if (!filled || !resident) upload(lane, inputs);
  for (size_t i = 0; i < inputs_.size(); ++i)
    context_.bind_device_input(i, inputs_[i].dims, lane.inputs.bytes_at(inputs_[i].offset));
  for (size_t i = 0; i < outputs_.size(); ++i)
    context_.bind_device_output(i, lane.outputs.bytes_at(outputs_[i].offset), outputs_[i].bytes);
  context_.run_bound({.random = random, .stream = compute_->native()});
  compute_->download(lane.results.get(), lane.outputs.get(), output_bytes_);
  compute_->record(*lane.done);
  next_ = (next_ + 1) % kMost;
  ++pending_;
}

std::vector<Tensor> StepQueue::finish() {
  PELTON_CHECK(pending_ > 0, "no step is on its way");
  executable_.device()->activate();
  Lane& lane = lanes_[(next_ + kMost - pending_) % kMost];
  --pending_;
  lane.done->synchronize();
  lane.kept.clear();
  std::vector<Tensor> out;
  for (const Part& part : outputs_) {
    Tensor t(part.dtype, part.dims);
    if (part.bytes > 0)
      std::memcpy(t.mutable_data(), lane.results.bytes_at(part.offset), static_cast<size_t>(part.bytes));
    out.push_back(std::move(t));
  }
  return out;
}

void StepQueue::clear() {
  while (pending_ > 0) finish();
  for (size_t i = 0; i < outputs_.size(); ++i) context_.bind_output(i, nullptr, 0);
}

}  // namespace pelton::train
