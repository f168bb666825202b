// SPDX-License-Identifier: Apache-2.0
// State of a device frame: which of its two copies counts, and how the next value takes its place.
#include "runtime/device_frame.h"

namespace pelton::runtime {

using namespace ir;

void* DeviceFrame::state_memory(size_t i, int64_t bytes) {
  const StatePlace& place = state_place_[i];
  if (place.buffer >= 0 && bytes <= place.bytes) {
    device::Memory& buffer = state_buffers_[static_cast<size_t>(place.buffer)];
    const StateBuffer& layout = region_.state_layout()[static_cast<size_t>(place.buffer)];
    if (!buffer.get() && layout.bytes > 0) {
      const Slot& first = region_.graph().slots[layout.segments[0].slot];
      buffer = device::Memory(device_, layout.bytes,
                              cat(layout.segments.size(), " state slots, the first '", first.name, "'"));
    }
    return state_at_[i] = buffer.bytes_at(place.offset);
  }
  device::Memory& own = own_state_[i];
  if (own.bytes() < bytes) {
    own = {};
    own = device::Memory(device_, bytes, cat("state slot '", region_.graph().slots[i].name, "'"));
  }
  return state_at_[i] = own.get();
}

void DeviceFrame::upload_state() {
  for (size_t i = 0; i < owner_.size(); ++i) {
    if (owner_[i] != i) continue;
    if (const Shared& s = shared_[i]; s.with) {
      state_at_[i] = s.with->settled_state(s.slot);
      state_on_device_[i] = false;  // no longer its own
      continue;
    }
    if (state_on_device_[i] || !state_[i].defined() || state_[i].dtype() == DType::string) continue;
    const Tensor& t = own_state(i);
    stream_->upload(state_memory(i, t.bytes()), t.data(), t.bytes());
    state_on_device_[i] = true;
  }
  forget_host_state();
}

void* DeviceFrame::settled_state(size_t slot) {
  const size_t o = owner_[slot];
  if (!state_on_device_[o]) {
    device_->activate();
    const Tensor& t = state_[o];
    stream_->upload(state_memory(o, t.bytes()), t.data(), t.bytes());
    stream_->synchronize();
    state_on_device_[o] = true;
  }
  return state_at_[o];
}

// The device's copy of what it writes over is the one that counts, also for steps on the host that read it
// before or after.
void DeviceFrame::forget_host_state() {
  for (size_t i = 0; i < owner_.size(); ++i)
    if (region_.in_place(i)) state_on_host_[i] = false;
}

void DeviceFrame::finish_state() {
  const Graph& g = region_.graph();
  forget_host_state();
  // Values that lie on the host, or are the old value of another slot, are taken before any slot changes.
  std::vector<std::pair<size_t, Tensor>> from_host;
  bool copied = false;
  auto changes = [&](size_t i) {
    return g.slots[i].next && g.slots[i].next != g.slots[i].old_value && !region_.in_place(i);
  };
  for (size_t i = 0; i < g.slots.size(); ++i) {
    if (!changes(i)) continue;
    const Region::Value& place = region_.value(g.slots[i].next);
    if (place.place == Place::host && on_device_only(place.root)) continue;
    if (place.place == Place::input) fetch_input(place.index);
    from_host.emplace_back(i, result(g.slots[i].next).tensor.clone());
  }
  for (size_t i = 0; i < g.slots.size(); ++i) {
    if (!changes(i)) continue;
    const Region::Value& place = region_.value(g.slots[i].next);
    if (place.place != Place::host || !on_device_only(place.root)) continue;
    size_t o = owner_[i];
    const Type& type = g.type(g.slots[i].next);
    Dims dims = eval(type.shape, symbols_);
    int64_t bytes = bytes_of(place.root);
    const bool fits = bytes <= state_place_[o].bytes || bytes <= own_state_[o].bytes();
    if (!fits) stream_->synchronize();  // what has its memory may still run
    if (void* to = state_memory(o, bytes); bytes > 0) stream_->copy(to, device_at_[place.root.index], bytes);
    copied = true;
    if (state_[o].dims() != dims) {
      state_[o] = Tensor(type.dtype, dims);
      sizes_known_ = false;
    }
    state_on_device_[o] = true;
    state_on_host_[o] = false;
  }
  for (auto& [slot, tensor] : from_host) {
    size_t o = owner_[slot];
    if (tensor.dims() != state_[o].dims()) sizes_known_ = false;
    state_[o] = aligned(tensor);
    state_on_host_[o] = true;
    state_on_device_[o] = false;
  }
  if (copied && stream_ == own_stream_.get()) stream_->synchronize();
}

const Tensor& DeviceFrame::state(size_t slot) {
  size_t o = owner_[slot];
  if (shared_[o].with) return Frame::state(slot);
  if (!state_on_host_[o]) {
    device_->activate();
    stream_->download(state_[o].mutable_data(), state_at_[o], state_[o].bytes());
    stream_->synchronize();
    state_on_host_[o] = true;
  }
  return state_[o];
}

void DeviceFrame::set_state(size_t slot, Tensor value) {
  Frame::set_state(slot, std::move(value));
  state_on_host_[owner_[slot]] = true;
  state_on_device_[owner_[slot]] = false;
}

void DeviceFrame::reset_state() {
  Frame::reset_state();
  state_on_host_.assign(state_.size(), true);
  state_on_device_.assign(state_.size(), false);
}

}  // namespace pelton::runtime
