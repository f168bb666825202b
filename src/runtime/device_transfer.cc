// SPDX-License-Identifier: Apache-2.0
// Bytes of a device frame between host and device: inputs, results, state, operands of steps on the host.
#include <cstring>

#include "ir/op.h"
#include "runtime/device_frame.h"
#include "runtime/memory_plan.h"

namespace pelton::runtime {

using namespace ir;

namespace {

// Up to here a copy goes through pinned memory of the frame; a larger one straight from or to the caller's,
// which the driver splits and overlaps itself.
constexpr int64_t kStagedBytes = 4 << 20;

int64_t padded(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

}  // namespace

bool DeviceFrame::on_device_only(ValueId root) const {
  const Region::Value& value = region_.value(root);
  return value.sized && (value.place == Place::host || value.place == Place::arena) && !on_host_[root.index];
}

int64_t DeviceFrame::bytes_of(ValueId root) const {
  const Type& type = region_.graph().type(root);
  return physical_bytes(type, eval(type.shape, symbols_));
}

HostValue DeviceFrame::host_buffer(ValueId root) const {
  const Type& type = region_.graph().type(root);
  if (type.layout.is_plain()) return Tensor(type.dtype, eval(type.shape, symbols_));
  return Tensor(DType::u8, {bytes_of(root)});
}

void* DeviceFrame::result_buffer(ValueId root, int64_t bytes) {
  if (int32_t output = bound_root_[root.index]; output >= 0)
    if (const Bound& b = device_outputs_[static_cast<size_t>(output)]; b.data && b.bytes == bytes)
      return b.data;
  device::Memory& memory = result_memory_[root.index];
  if (memory.bytes() < bytes) {
    memory = {};
    memory = device::Memory(device_, bytes, cat("the value ", region_.graph().label(root)));
    if (poison_) stream_->fill(memory.get(), kPoison, bytes);
  }
  return memory.get();
}

// `needed`: whether a kernel looks at the bytes; what only the host reads gets no memory here.
void* DeviceFrame::device_address(const Ref& ref, bool needed) {
  const Region::Value* value = ref.value ? &region_.value(ref.value) : nullptr;
  void* at = nullptr;
  switch (ref.place) {
    case Place::none:
      return nullptr;
    case Place::constant:
      if (!needed) return nullptr;
      at = region_.device_constant(ref.index);
      break;
    case Place::input:
      at = const_cast<void*>(device_inputs_[ref.index]);
      if (!at) at = input_memory_[ref.index].get();
      break;
    case Place::slot:
      at = state_at_[owner_[ref.index]];
      break;
    case Place::host: {
      if (!region_.graph().type(value->root).is_tensor()) return nullptr;
      if (ref.bytes == 0) return empty_.get();  // empty, or the result of a cut, whose size is not known yet
      at = result_buffer(value->root, ref.bytes);
      const Region::Value& root = region_.value(value->root);
      bool only_on_host = on_host_[value->root.index] && !device_at_[value->root.index];
      // The result of a cut is on the host until a kernel wants it.
      if (!root.sized && needed && only_on_host)
        stream_->upload(at, host_[value->root.index].tensor.data(), ref.bytes);
      break;
    }
    case Place::arena:
      at = device_arena_.bytes_at(ref.offset);
      break;
  }
  if (!at) at = empty_.get();
  if (ref.place == Place::host) device_at_[value->root.index] = at;
  return at;
}

void DeviceFrame::upload_inputs(const RandomKey& random) {
  const Graph& g = region_.graph();
  const uint64_t key[2] = {random.seed, random.step};
  const bool draws =
      key_.get() && (!key_known_ || key_there_.seed != random.seed || key_there_.step != random.step);
  int64_t staged = draws ? padded(sizeof key) : 0;
  auto copied = [&](size_t i) {
    const Type& type = g.type(g.inputs[i]);
    return type.is_tensor() && type.dtype != DType::string && !device_inputs_[i] &&
           region_.value(g.inputs[i]).device_reads && inputs_[i].tensor.bytes() > 0;
  };
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (copied(i) && inputs_[i].tensor.bytes() <= kStagedBytes) staged += padded(inputs_[i].tensor.bytes());
  // The copies of a run that nobody waited for must be done before others take their place.
  if (staged_pending_ && staged > 0) {
    staged_->synchronize();
    staged_pending_ = false;
  }
  if (staging_in_.bytes() < staged) {
    staging_in_ = {};
    staging_in_ = device::Memory(device_, staged, "inputs on their way", device::Memory::Where::pinned);
  }
  int64_t at = 0;
  if (draws) {
    std::memcpy(staging_in_.get(), key, sizeof key);
    stream_->upload(key_.get(), staging_in_.get(), sizeof key);
    at = padded(sizeof key);
    key_there_ = random;
    key_known_ = true;
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (device_inputs_[i])
      inputs_[i].tensor =
          Tensor::borrow(inputs_[i].tensor.dtype(), inputs_[i].tensor.dims(), nullptr, nullptr);
    if (!copied(i)) continue;
    const Tensor& t = inputs_[i].tensor;
    device::Memory& memory = input_memory_[i];
    if (memory.bytes() < t.bytes()) {
      memory = {};
      memory = device::Memory(device_, t.bytes(), cat("input '", g[g.inputs[i]].name, "'"));
    }
    const void* from = t.data();
    if (t.bytes() <= kStagedBytes) {
      std::memcpy(staging_in_.bytes_at(at), from, static_cast<size_t>(t.bytes()));
      from = staging_in_.bytes_at(at);
      at += padded(t.bytes());
    }
    stream_->upload(memory.get(), from, t.bytes());
  }
  if (staged > 0 && stream_ != own_stream_.get()) {
    if (!staged_) staged_ = device_->make_event(false);
    stream_->record(*staged_);
    staged_pending_ = true;
  }
}

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

void DeviceFrame::fetch(const std::vector<ValueId>& roots) {
  bool any = false;
  for (ValueId root : roots) {
    if (!on_device_only(root)) continue;
    HostValue& to = host_[root.index];
    to = host_buffer(root);
    if (int64_t bytes = bytes_of(root); bytes > 0)
      stream_->download(to.tensor.mutable_data(), device_at_[root.index], bytes);
    on_host_[root.index] = any = true;
  }
  if (any) stream_->synchronize();
}

void DeviceFrame::fetch_input(size_t i) {
  Tensor& t = inputs_[i].tensor;
  if (!device_inputs_[i] || t.data()) return;
  t = Tensor(t.dtype(), t.dims());
  stream_->download(t.mutable_data(), device_inputs_[i], t.bytes());
  stream_->synchronize();
}

// Fills host_view_ with host copies of the step's operands, and of its results where those are computed
// already.
void DeviceFrame::host_addresses(const Ready& r, const Step& step, bool results) {
  const Program& p = *r.program;
  if (host_view_.program != r.program) {
    host_view_.program = r.program;
    host_view_.addresses.assign(p.refs.size(), nullptr);
  }
  uint32_t end = results ? step.first_out + step.out_count : step.first_in + step.in_count;
  std::vector<ValueId> wanted;
  for (uint32_t i = step.first_in; i < end; ++i) {
    const Ref& ref = p.refs[i];
    if (ref.place == Place::host || ref.place == Place::arena)
      wanted.push_back(region_.value(ref.value).root);
    if (ref.place == Place::input) fetch_input(ref.index);
  }
  fetch(wanted);
  for (uint32_t i = step.first_in; i < end; ++i) {
    const Ref& ref = p.refs[i];
    const void* at = nullptr;
    switch (ref.place) {
      case Place::none:
        break;
      case Place::constant:
        at = region_.constant(ref.index).data();
        break;
      case Place::input:
        at = inputs_[ref.index].tensor.data();
        break;
      case Place::slot:
        at = state(ref.index).data();
        break;
      case Place::host:
      case Place::arena:
        at = host_[region_.value(ref.value).root.index].tensor.data();
        break;
    }
    static std::byte nothing[64];
    host_view_.addresses[i] = at || ref.place == Place::none ? const_cast<void*>(at) : nothing;
  }
}

// Starts the copies of all results that nobody bound on the device, and waits for them.
void DeviceFrame::download_results() {
  const Graph& g = region_.graph();
  std::vector<Download> downloads;
  int64_t pinned = 0;
  bool waits = !stream_ || stream_ == own_stream_.get();
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    ValueId root = region_.value(g.outputs[i]).root;
    if (device_outputs_[i].data || !on_device_only(root)) continue;
    const Type& type = g.type(root);
    const Bound& b = bound_[i];
    int64_t bytes = bytes_of(root);
    bool straight = b.data && bound_root_[root.index] == static_cast<int32_t>(i);
    if (straight && b.bytes != bytes)
      fail(ErrorCode::bad_shape,
           cat("the bound buffer has ", b.bytes, " bytes, the result ",
               Type::tensor(type.dtype, to_shape(eval(type.shape, symbols_))).str(), " needs ", bytes),
           cat("output '", g.output_name(i), "'"));
    if (straight)
      host_[root.index] = Tensor::borrow(type.dtype, eval(type.shape, symbols_), b.data, nullptr);
    else
      host_[root.index] = host_buffer(root);
    on_host_[root.index] = true;
    Download d{root, bytes, -1};
    if (bytes == 0) continue;
    if (bytes <= kStagedBytes) {
      d.pinned = pinned;
      pinned += padded(bytes);
    }
    downloads.push_back(d);
  }
  if (staging_out_.bytes() < pinned) {
    staging_out_ = {};
    staging_out_ = device::Memory(device_, pinned, "results on their way", device::Memory::Where::pinned);
  }
  auto target = [&](ValueId root) {
    return const_cast<void*>(static_cast<const void*>(host_[root.index].tensor.data()));
  };
  for (const Download& d : downloads)
    stream_->download(d.pinned >= 0 ? staging_out_.bytes_at(d.pinned) : target(d.root),
                      device_at_[d.root.index], d.bytes);
  if (downloads.empty() && !waits) return;  // the caller's stream, and everything stays on the device
  stream_->synchronize();
  check_faults();
  for (const Download& d : downloads)
    if (d.pinned >= 0)
      std::memcpy(target(d.root), staging_out_.bytes_at(d.pinned), static_cast<size_t>(d.bytes));
}

void DeviceFrame::check_faults() {
  auto* words = static_cast<uint32_t*>(faults_.get());
  const std::vector<Region::Node>& nodes = region_.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (words[i] == 0) continue;
    std::memset(words, 0, nodes.size() * sizeof(uint32_t));
    fail(ErrorCode::bad_shape, "an index lies outside of its axis", region_.graph().describe(nodes[i].id));
  }
}

void DeviceFrame::finish_outputs() {
  const Graph& g = region_.graph();
  outputs_.resize(g.outputs.size());
  bool copied = false;
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    ValueId v = g.outputs[i], root = region_.value(v).root;
    Place place = region_.value(v).place;
    if (place == Place::input) fetch_input(region_.value(v).index);
    if (const Bound& b = device_outputs_[i]; b.data) {
      outputs_[i] = HostValue();
      if (device_at_[root.index] == b.data && !(on_host_[root.index] && !region_.value(root).device_reads))
        continue;
      bool from_device = place == Place::host && on_device_only(root);
      Tensor t = from_device ? Tensor() : result(v).tensor;
      int64_t bytes = from_device ? bytes_of(root) : t.bytes();
      if (bytes != b.bytes)
        fail(ErrorCode::bad_shape,
             cat("the bound buffer has ", b.bytes, " bytes, the result ", g.type(v).str(), " needs ", bytes),
             cat("output '", g.output_name(i), "'"));
      if (bytes == 0) continue;
      if (from_device) {
        stream_->copy(b.data, device_at_[root.index], bytes);
      } else {
        stream_->upload(b.data, t.data(), bytes);
        stream_->synchronize();
      }
      copied = true;
      continue;
    }
    if (bound_[i].data && bound_root_[root.index] == static_cast<int32_t>(i) &&
        host_[root.index].tensor.data() == bound_[i].data)
      continue;  // written in place
    outputs_[i] = result(v);
    copy_to_bound(i);
  }
  if (copied && stream_ == own_stream_.get()) stream_->synchronize();
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

void DeviceFrame::set_input(size_t index, HostValue value) {
  Frame::set_input(index, std::move(value));
  device_inputs_[index] = nullptr;
}

void DeviceFrame::bind_output(size_t index, void* data, int64_t bytes) {
  Frame::bind_output(index, data, bytes);
  device_outputs_[index] = {};
}

namespace {

// Kernels move 16 bytes at a time.
void require_aligned(const void* data, const std::string& where) {
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0)
    fail(ErrorCode::usage, "a bound device buffer starts at an address that is no multiple of 16", where,
         "bind the start of an allocation, or copy the part");
}

}  // namespace

void DeviceFrame::bind_device_input(size_t index, Dims dims, const void* data) {
  const Graph& g = region_.graph();
  const Type& type = g.type(g.inputs[index]);
  if (!type.is_tensor() || type.dtype == DType::string || !data)
    fail(ErrorCode::bad_type,
         cat("an input of type ", type.str(), " cannot be bound", data ? "" : " to null"),
         cat("input '", g[g.inputs[index]].name, "'"));
  require_aligned(data, cat("input '", g[g.inputs[index]].name, "'"));
  Frame::set_input(index, Tensor::borrow(type.dtype, std::move(dims), nullptr, nullptr));
  device_inputs_[index] = data;
}

void DeviceFrame::bind_device_output(size_t index, void* data, int64_t bytes) {
  require_aligned(data, cat("output '", region_.graph().output_name(index), "'"));
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
  const Graph& g = region_.graph();
  device_->activate();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Bound& b = device_outputs_[i];
    if (!b.data) continue;
    const Tensor& t = outputs_[i].tensor;
    if (t.bytes() != b.bytes)
      fail(ErrorCode::bad_shape,
           cat("the bound buffer has ", b.bytes, " bytes, the result ", t.str(), " needs ", t.bytes()),
           cat("output '", g.output_name(i), "'"));
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
