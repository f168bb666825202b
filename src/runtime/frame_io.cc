// SPDX-License-Identifier: Apache-2.0
// Inputs that are set, results that are bound, allocated and taken.
#include <algorithm>
#include <cstring>

#include "ir/op.h"
#include "runtime/frame.h"

namespace pelton::runtime {

using namespace ir;

std::string Frame::input_place(size_t index) const {
  const Graph& g = region_.graph();
  return cat("input '", g[g.inputs[index]].name, "'");
}

std::string Frame::output_place(size_t index) const {
  return cat("output '", region_.graph().output_name(index), "'");
}

void Frame::require_bound_size(size_t output, const Bound& bound, DType dtype, const Dims& dims,
                               int64_t bytes) const {
  if (bound.bytes == bytes) return;
  fail(ErrorCode::bad_shape,
       cat("the bound buffer has ", bound.bytes, " bytes, the result ", name(dtype), dims, " needs ", bytes),
       output_place(output));
}

void Frame::set_input(size_t index, HostValue value) {
  const Graph& g = region_.graph();
  const Type& type = g.type(g.inputs[index]);
  HostValue& old = inputs_[index];
  if (value.kind != type.kind) fail(ErrorCode::bad_type, cat("expected ", type.str()), input_place(index));
  if (type.is_tensor()) {
    const Tensor& t = value.tensor;
    if (!t.defined()) fail(ErrorCode::usage, "has no value", input_place(index));
    if (t.dtype() != type.dtype)
      fail(ErrorCode::bad_type, cat("expected ", type.str(), ", got ", t.str()), input_place(index));
    if (!old.tensor.defined() || old.tensor.dims() != t.dims()) sizes_known_ = false;
  }
  old = std::move(value);
}

void Frame::bind_output(size_t index, void* data, int64_t bytes) {
  bound_[index] = {data, bytes};
}

void Frame::bind_device_input(size_t index, Dims, const void*) {
  fail(ErrorCode::usage, "the plan runs on the CPU, which has no device memory", input_place(index));
}

void Frame::bind_device_output(size_t index, void*, int64_t) {
  fail(ErrorCode::usage, "the plan runs on the CPU, which has no device memory", output_place(index));
}

void Frame::take_over(Frame& from) {
  inputs_ = from.inputs_;
  bound_ = from.bound_;
  sizes_known_ = false;
}

void Frame::unbind() {
  for (HostValue& v : inputs_) v = HostValue();
  for (HostValue& v : host_) v = HostValue();
  std::fill(bound_.begin(), bound_.end(), Bound{});
  outputs_.clear();
  forget_kept_memory();
  sizes_known_ = false;
  if (!state_.empty()) reset_state();
}

// Results and values for later segments get their buffers: the caller's, where one is bound, else their own.
void Frame::allocate_results(const Program& program) {
  const Graph& g = region_.graph();
  for (uint32_t r : program.host_results) {
    const Ref& ref = program.refs[r];
    const Type& type = g.type(ref.value);
    int32_t output = bound_root_[ref.value.index];
    if (output >= 0 && bound_[static_cast<size_t>(output)].data) {
      const Bound& b = bound_[static_cast<size_t>(output)];
      require_bound_size(static_cast<size_t>(output), b, type.dtype, ref.dims, ref.bytes);
      Tensor& t = host_[ref.index].tensor;
      if (t.data() != b.data || t.dims() != ref.dims)
        host_[ref.index] = Tensor::borrow(type.dtype, ref.dims, b.data, nullptr);
      continue;
    }
    Tensor reused;
    for (size_t i = 0; i < g.slots.size(); ++i)
      if (g.slots[i].next == ref.value) reused = std::move(spare_[owner_[i]]);
    bool fits = reused.defined() && reused.dtype() == type.dtype && reused.dims() == ref.dims;
    if (fits) reused.mutable_data();  // its own bytes, should someone else hold the old value
    if (type.layout.is_plain())
      host_[ref.index] = fits ? std::move(reused) : Tensor(type.dtype, ref.dims);
    else  // block padding has no place in logical dims
      host_[ref.index] = Tensor(DType::u8, {ref.bytes});
  }
}

HostValue Frame::result(ValueId v) {
  const Graph& g = region_.graph();
  const Region::Value& place = region_.value(v);
  const HostValue* from = nullptr;
  Tensor source;
  switch (place.place) {
    case Place::host:
      from = &host_[place.root.index];
      break;
    case Place::input:
      from = &inputs_[place.index];
      break;
    case Place::slot:
      source = state(place.index);
      break;
    case Place::constant:
      source = region_.constant(place.index);
      break;
    case Place::none:
    case Place::arena:
      return HostValue::token();
  }
  if (from && place.root == v) return *from;
  const Tensor& t = from ? from->tensor : source;
  if (place.root == v) return t;
  return Tensor::borrow(g.type(v).dtype, eval(g.type(v).shape, symbols_), t.data(),
                        std::make_shared<Tensor>(t));
}

void Frame::copy_to_bound(size_t i) {
  const Graph& g = region_.graph();
  const Bound& b = bound_[i];
  if (!b.data) return;
  const Tensor& t = outputs_[i].tensor;
  if (!t.defined() || t.dtype() == DType::string)
    fail(ErrorCode::bad_type, cat("a result of type ", g.type(g.outputs[i]).str(), " cannot be bound"),
         output_place(i));
  require_bound_size(i, b, t.dtype(), t.dims(), t.bytes());
  if (b.bytes) std::memmove(b.data, t.data(), static_cast<size_t>(b.bytes));
}

void Frame::finish() {
  const Graph& g = region_.graph();
  outputs_.resize(g.outputs.size());
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    ValueId root = region_.value(g.outputs[i]).root;
    if (bound_[i].data && bound_root_[root.index] == static_cast<int32_t>(i) &&
        host_[root.index].tensor.data() == bound_[i].data)
      continue;  // written in place
    outputs_[i] = result(g.outputs[i]);
    copy_to_bound(i);
  }
  // All results are taken before any state changes, since one may be the old value of another slot.
  std::vector<std::pair<size_t, Tensor>> next;
  for (size_t i = 0; i < g.slots.size(); ++i)
    if (g.slots[i].next && g.slots[i].next != g.slots[i].old_value)
      next.emplace_back(i, result(g.slots[i].next).tensor);
  for (auto& [slot, tensor] : next) {
    size_t o = owner_[slot];
    if (tensor.dims() != state_[o].dims()) sizes_known_ = false;
    spare_[o] = std::move(state_[o]);
    state_[o] = aligned(tensor);
    host_[region_.value(g.slots[slot].next).root.index] = HostValue();
  }
}

void Frame::adopt_outputs(std::vector<HostValue> outputs) {
  outputs_ = std::move(outputs);
  for (size_t i = 0; i < outputs_.size(); ++i) copy_to_bound(i);
}

std::vector<HostValue> Frame::take_outputs() {
  const Graph& g = region_.graph();
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (bound_[i].data && outputs_[i].tensor.data() != bound_[i].data) outputs_[i] = result(g.outputs[i]);
  for (ValueId v : g.outputs) {
    const Region::Value& place = region_.value(v);
    if (place.place == Place::host && bound_root_[place.root.index] >= 0 &&
        !bound_[static_cast<size_t>(bound_root_[place.root.index])].data)
      host_[place.root.index] = HostValue();
  }
  return std::move(outputs_);
}

}  // namespace pelton::runtime
