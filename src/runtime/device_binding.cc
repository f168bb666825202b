// SPDX-License-Identifier: Apache-2.0
// Buffers of the caller, on the host and on the device, bound to inputs and results.
#include "runtime/device_frame.h"

namespace pelton::runtime {

using namespace ir;

namespace {

// Kernels move 16 bytes at a time.
void require_aligned(const void* data, const std::string& where) {
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0)
    fail(ErrorCode::usage, "a bound device buffer starts at an address that is no multiple of 16", where,
         "bind the start of an allocation, or copy the part");
}

}  // namespace

void DeviceFrame::set_input(size_t index, HostValue value) {
  Frame::set_input(index, std::move(value));
  device_inputs_[index] = nullptr;
}

void DeviceFrame::bind_output(size_t index, void* data, int64_t bytes) {
  Frame::bind_output(index, data, bytes);
  device_outputs_[index] = {};
}

void DeviceFrame::bind_device_input(size_t index, Dims dims, const void* data) {
  const Graph& g = region_.graph();
  const Type& type = g.type(g.inputs[index]);
  if (!type.is_tensor() || type.dtype == DType::string || !data)
    fail(ErrorCode::bad_type,
         cat("an input of type ", type.str(), " cannot be bound", data ? "" : " to null"),
         input_place(index));
  require_aligned(data, input_place(index));
  Frame::set_input(index, Tensor::borrow(type.dtype, std::move(dims), nullptr, nullptr));
  device_inputs_[index] = data;
}

void DeviceFrame::bind_device_output(size_t index, void* data, int64_t bytes) {
  const Graph& g = region_.graph();
  const Type& type = g.type(g.outputs[index]);
  if (data && (!type.is_tensor() || type.dtype == DType::string))
    fail(ErrorCode::bad_type, cat("a result of type ", type.str(), " cannot be bound"), output_place(index));
  require_aligned(data, output_place(index));
  Frame::bind_output(index, nullptr, 0);
  device_outputs_[index] = {data, bytes};
}

HostValue DeviceFrame::input(size_t index) {
  device_->activate();
  fetch_input(index);
  return inputs_[index];
}

void DeviceFrame::adopt_outputs(std::vector<HostValue> outputs) {
  Frame::adopt_outputs(std::move(outputs));
  device_->activate();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Bound& b = device_outputs_[i];
    if (!b.data) continue;
    const Tensor& t = outputs_[i].tensor;
    require_bound_size(i, b, t.dtype(), t.dims(), t.bytes());
    stream_->upload(b.data, t.data(), t.bytes());
  }
  stream_->synchronize();
}

void DeviceFrame::take_over(Frame& from) {
  Frame::take_over(from);
  const auto& other = static_cast<const DeviceFrame&>(from);  // of a region on the same device
  device_inputs_ = other.device_inputs_;
  device_outputs_ = other.device_outputs_;
}

void DeviceFrame::unbind() {
  std::fill(device_inputs_.begin(), device_inputs_.end(), nullptr);
  std::fill(device_outputs_.begin(), device_outputs_.end(), Bound{});
  if (stream_ != own_stream_.get()) {
    // The caller's stream may be gone when the context is used again.
    try {
      device_->activate();
      stream_->synchronize();
    } catch (const Error&) {
    }
    stream_ = own_stream_.get();
    adopted_.reset();
  }
  Frame::unbind();
}

}  // namespace pelton::runtime
