// SPDX-License-Identifier: Apache-2.0
// Bytes of a device frame between host and device: inputs and results.
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
      memory = device::Memory(device_, t.bytes(), input_place(i));
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

void DeviceFrame::fetch_input(size_t i) {
  Tensor& t = inputs_[i].tensor;
  if (!device_inputs_[i] || t.data()) return;
  t = Tensor(t.dtype(), t.dims());
  stream_->download(t.mutable_data(), device_inputs_[i], t.bytes());
  stream_->synchronize();
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
    if (straight) {
      Dims dims = eval(type.shape, symbols_);
      require_bound_size(i, b, type.dtype, dims, bytes);
      host_[root.index] = Tensor::borrow(type.dtype, std::move(dims), b.data, nullptr);
    } else {
      host_[root.index] = host_buffer(root);
    }
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
  const auto* words = static_cast<const uint32_t*>(faults_.get());
  const std::vector<Region::Node>& nodes = region_.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (words[i] == 0) continue;
    clear_faults();
    fail(ErrorCode::bad_shape, "an index or a length lies outside of its axis",
         region_.graph().describe(nodes[i].id));
  }
}

void DeviceFrame::clear_faults() {
  if (faults_.get()) std::memset(faults_.get(), 0, static_cast<size_t>(faults_.bytes()));
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
      require_bound_size(i, b, g.type(v).dtype, eval(g.type(v).shape, symbols_), bytes);
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

}  // namespace pelton::runtime
