// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_frame.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "device/fault.h"
#include "ir/op.h"

namespace pelton::runtime {

using namespace ir;

namespace {

constexpr int64_t kSmallRunBytes = 64 << 10;
constexpr size_t kNamedPlaces = 4;  // kernels that a message lists

}  // namespace

DeviceFrame::DeviceFrame(const Region& region)
    : Frame(region), device_(region.options().device), ready_(region.segments().size()) {
  const Graph& g = region.graph();
  device_->activate();
  own_stream_ = device_->make_stream();
  stream_ = own_stream_.get();
  empty_ = device::Memory(device_, 256, "empty tensors");
  auto words = static_cast<int64_t>(region.nodes().size() * sizeof(uint32_t));
  faults_ = device::Memory(device_, words, "reports of kernels", device::Memory::Where::pinned);
  if (words > 0) std::memset(faults_.get(), 0, static_cast<size_t>(words));
  if (region.draws_on_device())
    key_ = device::Memory(device_, 2 * sizeof(uint64_t), "the key of random numbers");
  input_memory_.resize(g.inputs.size());
  device_inputs_.assign(g.inputs.size(), nullptr);
  device_outputs_.resize(g.outputs.size());
  own_state_.resize(g.slots.size());
  state_place_.resize(g.slots.size());
  state_at_.assign(g.slots.size(), nullptr);
  const std::vector<StateBuffer>& layout = region.state_layout();
  state_buffers_.resize(layout.size());
  for (size_t b = 0; b < layout.size(); ++b)
    for (const StateSegment& s : layout[b].segments)
      state_place_[s.slot] = {static_cast<int32_t>(b), s.offset, s.bytes};
  state_on_host_.assign(g.slots.size(), true);
  state_on_device_.assign(g.slots.size(), false);
  result_memory_.resize(g.value_count());
  device_at_.assign(g.value_count(), nullptr);
  on_host_.assign(g.value_count(), false);
}

DeviceFrame::~DeviceFrame() {
  try {
    device_->activate();
    stream_->synchronize();  // nothing in flight uses the memory that goes
  } catch (const Error&) {
    // A lost device: its memory goes with the process.
  }
  if (Budget* budget = region_.options().budget) budget->give(device_arena_.bytes());
}

int64_t DeviceFrame::arena_bytes() const {
  return device_arena_.bytes() + Frame::arena_bytes();
}

void DeviceFrame::grow_device_arena(int64_t bytes) {
  if (bytes <= device_arena_.bytes()) return;
  std::string what = cat("the arena of graph '", region_.graph().name, "'");
  Budget* budget = region_.options().budget;
  played_.clear();  // they hold addresses in the old one
  ++arena_made_;
  if (budget) budget->give(device_arena_.bytes());
  device_arena_ = {};
  if (budget) budget->take(bytes, region_.packed_bytes(), what);
  try {
    device_arena_ = device::Memory(device_, bytes, what);
  } catch (...) {
    if (budget) budget->give(bytes);
    throw;
  }
  if (poison_) stream_->fill(device_arena_.get(), kPoison, bytes);
}

DeviceFrame::Ready& DeviceFrame::ready(size_t segment) {
  Ready& r = ready_[segment];
  // The base class drops the program of its first segment when sizes change.
  std::shared_ptr<const Program> program =
      segment == 0 && loaded_[0].program ? loaded_[0].program : region_.program(segment, symbols_);
  if (segment == 0) loaded_[0].program = program;
  grow_device_arena(program->arena_bytes);
  if (r.program == program && r.arena_made == arena_made_) return r;
  r = Ready{};
  r.program = program;
  r.arena_made = arena_made_;
  r.addresses.assign(program->refs.size(), nullptr);
  const std::vector<Step>& steps = program->steps;
  for (uint32_t s = 0; s < steps.size(); ++s) {
    const Step& step = steps[s];
    bool joins = !r.parts.empty() && !r.parts.back().host && step.on_device &&
                 r.parts.back().recordable == step.capturable;
    if (joins)
      r.parts.back().last = s + 1;
    else
      r.parts.push_back({s, s + 1, !step.on_device, step.on_device && step.capturable});
    for (uint32_t i = step.first_in; i < step.first_out + step.out_count; ++i) {
      const Ref& ref = program->refs[i];
      bool fixed = ref.place == Place::none || ref.place == Place::constant || ref.place == Place::arena;
      if (fixed)
        r.addresses[i] = device_address(ref, step.on_device && ref.read);
      else
        r.moving.push_back(i);
      if (ref.place == Place::arena && i >= step.first_out)
        r.in_arena.emplace_back(region_.value(ref.value).root, r.addresses[i]);
    }
  }
  return r;
}

void DeviceFrame::run(const RunOptions& options, const SymbolValues& outer) {
  find_sizes(outer);
  device_->activate();
  if (options.stream && (!adopted_ || adopted_->native() != options.stream))
    adopted_ = device_->adopt_stream(options.stream);
  stream_ = options.stream ? adopted_.get() : own_stream_.get();
  std::fill(device_at_.begin(), device_at_.end(), nullptr);
  std::fill(on_host_.begin(), on_host_.end(), false);
  auto mark = [&](int i) {
    if (!options.phases) return;
    if (!marks_[i]) marks_[i] = device_->make_event(true);
    stream_->record(*marks_[i]);
  };
  try {
    if (poison_) poison_results();
    mark(0);
    upload_inputs(options.random);
    upload_state();
    mark(1);
    for (size_t s = 0; s < ready_.size(); ++s) run_segment(s, options);
    mark(2);
    download_results();
    mark(3);
    finish_outputs();
    finish_state();
    if (options.phases) {
      marks_[3]->synchronize();
      *options.phases = {marks_[1]->ms_since(*marks_[0]), marks_[2]->ms_since(*marks_[1]),
                         marks_[3]->ms_since(*marks_[2])};
    }
  } catch (const Error& e) {
    recover();
    if (e.code() != ErrorCode::device_lost || !e.where().empty()) throw;
    // A kernel failed long after it was enqueued.
    throw Error(e.code(), e.message(), places(),
                cat(e.fix(), "; PELTON_POISON=1 waits for every kernel and so names the one that fails"));
  } catch (...) {
    recover();
    throw;
  }
}

std::string DeviceFrame::places() const {
  std::string out = cat("graph '", region_.graph().name, "'");
  const std::vector<Region::Node>& nodes = region_.nodes();
  std::vector<std::string> names;
  for (const Region::Node& n : nodes)
    if (n.on_device) names.push_back(region_.graph().describe(n.id));
  if (names.size() > kNamedPlaces) return cat(out, ", one of ", names.size(), " kernels");
  for (const std::string& name : names) append(out, cat(", ", name));
  return out;
}

void DeviceFrame::recover() {
  forget_host_state();
  // Copies in flight read and write host memory that the caller may free.
  try {
    stream_->synchronize();
  } catch (const Error&) {
  }
}

void DeviceFrame::poison_results() {
  for (const device::Memory& memory : result_memory_)
    if (memory.bytes() > 0) stream_->fill(memory.get(), kPoison, memory.bytes());
  for (const Bound& bound : device_outputs_)
    if (bound.data && bound.bytes > 0) stream_->fill(bound.data, kPoison, bound.bytes);
}

void DeviceFrame::run_segment(size_t segment, const RunOptions& options) {
  Ready& r = ready(segment);
  for (const auto& [root, at] : r.in_arena) device_at_[root.index] = at;
  for (uint32_t i : r.moving) {
    const Ref& ref = r.program->refs[i];
    r.addresses[i] = device_address(ref, ref.read);
  }
  bool one_by_one = options.observe || poison_;
  Played* known = nullptr;
  bool record = false;
  if (!one_by_one && region_.options().max_graphs > 0) {
    known = &played(r);
    record = !known->recorded && !known->parts.empty();
    if (known->parts.empty()) known->parts.resize(r.parts.size());
  }
  for (size_t i = 0; i < r.parts.size(); ++i) {
    const Part& part = r.parts[i];
    const Step& first = r.program->steps[part.first];
    // A run that has begun to write over its state is not stopped half-way.
    if (i == 0 || !region_.writes_state()) check_interrupts(first, options);
    if (part.host) {
      run_on_host(r, first, options);
    } else if (one_by_one || !known || !part.recordable || (!record && !known->recorded)) {
      run_part(r, part, options);
    } else {
      std::unique_ptr<device::Recording>& recording = known->parts[i];
      if (!recording) {
        stream_->begin_recording();
        try {
          record_part(r, part, options);
        } catch (...) {
          stream_->abandon_recording();
          throw;
        }
        recording = stream_->end_recording();
      }
      stream_->play(*recording);
    }
  }
  if (record) known->recorded = true;
}

DeviceFrame::Played& DeviceFrame::played(const Ready& r) {
  std::vector<void*> addresses;
  addresses.reserve(r.moving.size());
  for (uint32_t i : r.moving) addresses.push_back(r.addresses[i]);
  for (auto it = played_.begin(); it != played_.end(); ++it)
    if (it->program == r.program && it->addresses == addresses) {
      played_.splice(played_.begin(), played_, it);
      return played_.front();
    }
  played_.push_front({r.program, std::move(addresses), false, {}});
  if (played_.size() > static_cast<size_t>(region_.options().max_graphs)) {
    stream_->synchronize();  // it may be playing
    played_.pop_back();
  }
  return played_.front();
}

void DeviceFrame::run_part(const Ready& r, const Part& part, const RunOptions& options) {
  const Program& p = *r.program;
  for (uint32_t s = part.first; s < part.last; ++s) {
    if (options.observe)
      run_observed(r, p.steps[s], options);
    else
      enqueue(r, p.steps[s], *stream_, options);
    if (!poison_) continue;
    // A failing kernel is named by the step it belongs to.
    with_place(region_.graph().describe(p.steps[s].node), [&] { stream_->synchronize(); });
    for (const Program::Freed& f : p.freed)
      if (f.step == s) stream_->fill(device_arena_.bytes_at(f.offset), kPoison, f.bytes);
  }
}

device::Event& DeviceFrame::lane_event() {
  if (lane_events_used_ == lane_events_.size()) lane_events_.push_back(device_->make_event(false));
  return *lane_events_[lane_events_used_++];
}

// A lane begins where the part begins and is waited for at its end; between, the steps wait for each other.
void DeviceFrame::record_part(const Ready& r, const Part& part, const RunOptions& options) {
  const std::vector<Step>& steps = r.program->steps;
  std::vector<device::Event*> done(part.last - part.first, nullptr);  // by step that another lane waits for
  std::vector<bool> wanted(done.size(), false);
  for (uint32_t s = part.first; s < part.last; ++s)
    for (int w : steps[s].waits) wanted[static_cast<size_t>(w) - part.first] = true;
  size_t beside = 0;  // lanes beside the first
  for (uint32_t s = part.first; s < part.last; ++s)
    beside = std::max(beside, static_cast<size_t>(steps[s].lane));
  lane_events_used_ = 0;
  device::Event* const begin = beside > 0 ? &lane_event() : nullptr;
  if (begin) stream_->record(*begin);
  while (lanes_.size() < beside) lanes_.push_back(device_->make_stream());
  std::vector<bool> entered(beside, false);
  for (const Step* step = &steps[part.first]; step != steps.data() + part.last; ++step) {
    const auto lane = static_cast<size_t>(step->lane);
    device::Stream& stream = lane == 0 ? *stream_ : *lanes_[lane - 1];
    if (lane > 0 && !entered[lane - 1]) {
      entered[lane - 1] = true;
      stream.wait(*begin);
    }
    for (int w : step->waits) stream.wait(*done[static_cast<size_t>(w) - part.first]);
    enqueue(r, *step, stream, options);
    const auto number = static_cast<size_t>(step - &steps[part.first]);
    if (wanted[number]) stream.record(*(done[number] = &lane_event()));
  }
  for (size_t lane = 0; lane < entered.size(); ++lane) {
    if (!entered[lane]) continue;
    device::Event& end = lane_event();
    lanes_[lane]->record(end);
    stream_->wait(end);
  }
}

void DeviceFrame::enqueue(const Ready& r, const Step& step, device::Stream& stream,
                          const RunOptions& options) {
  void* const* at = r.addresses.data();
  backend::RunArgs args;
  args.in = {at + step.first_in, step.in_count};
  args.out = {at + step.first_out, step.out_count};
  if (step.scratch_bytes) args.scratch = device_arena_.bytes_at(step.scratch_offset);
  args.random = options.random;
  args.stream = stream.native();
  args.random_on_device = static_cast<const uint64_t*>(key_.get());
  device::FaultScope scope(static_cast<uint32_t*>(faults_.get()) + step.position);
  try {
    step.kernel->run(args);
  } catch (const Error& e) {
    throw e.within(region_.graph().describe(step.node));
  }
}

void DeviceFrame::run_observed(const Ready& r, const Step& step, const RunOptions& options) {
  if (!step_begin_) {
    step_begin_ = device_->make_event(true);
    step_end_ = device_->make_event(true);
  }
  stream_->synchronize();
  int64_t start_ns = now_ns();
  stream_->record(*step_begin_);
  enqueue(r, step, *stream_, options);
  stream_->record(*step_end_);
  with_place(region_.graph().describe(step.node), [&] { step_end_->synchronize(); });
  auto end_ns = start_ns + static_cast<int64_t>(step_end_->ms_since(*step_begin_) * 1e6);
  if (!options.plain_values) return report_sizes(r, step, start_ns, end_ns, options);
  host_addresses(r, step, true);
  report(host_view_, step, start_ns, end_ns, options);
}

// Without the copies to the host that values need.
void DeviceFrame::report_sizes(const Ready& r, const Step& step, int64_t start_ns, int64_t end_ns,
                               const RunOptions& options) const {
  const Graph& g = region_.graph();
  auto sizes = [&](uint32_t first, uint32_t count) {
    std::vector<HostValue> out;
    for (uint32_t i = first; i < first + count; ++i) {
      const Ref& ref = r.program->refs[i];
      HostValue value;
      if (ref.place == Place::none && ref.value)
        value = HostValue::token();
      else if (ref.value)
        value = Tensor::borrow(g.type(ref.value).dtype, ref.dims, nullptr, nullptr);
      out.push_back(std::move(value));
    }
    return out;
  };
  std::vector<HostValue> inputs = sizes(step.first_in, step.in_count);
  std::vector<HostValue> outputs = sizes(step.first_out, step.out_count);
  options.observe({g, step.node, region_.nodes()[step.position].implementation, start_ns, end_ns,
                   region_.depth(), inputs, outputs});
}

void DeviceFrame::run_on_host(const Ready& r, const Step& step, const RunOptions& options) {
  const Program& p = *r.program;
  host_addresses(r, step, false);
  int64_t bytes = 0;
  for (uint32_t i = 0; i < step.out_count; ++i) {
    const Ref& ref = p.refs[step.first_out + i];
    void*& at = host_view_.addresses[step.first_out + i];
    at = nullptr;
    if (ref.place == Place::none || !region_.value(ref.value).sized) continue;
    ValueId root = region_.value(ref.value).root;
    host_[root.index] = host_buffer(root);
    at = host_[root.index].tensor.mutable_data();
    bytes += ref.bytes;
  }
  int64_t start_ns = options.observe ? now_ns() : 0;
  auto work = [&] {
    if (!step.kernel) return run_reference(host_view_, step, options);
    backend::RunArgs args;
    void* const* at = host_view_.addresses.data();
    args.in = {at + step.first_in, step.in_count};
    args.out = {at + step.first_out, step.out_count};
    if (step.scratch_bytes > 0) {
      if (!host_scratch_.defined() || host_scratch_.bytes() < step.scratch_bytes)
        host_scratch_ = Tensor(DType::u8, {step.scratch_bytes});
      args.scratch = host_scratch_.mutable_data();
    }
    args.random = options.random;
    run_prepared(step, args);
  };
  if (bytes > kSmallRunBytes)
    run_in_pool(work);
  else
    work();
  device_->activate();  // sub-graphs and pools may leave this thread on another
  if (options.observe) report(host_view_, step, start_ns, now_ns(), options);
  for (uint32_t i = 0; i < step.out_count; ++i) {
    const Ref& ref = p.refs[step.first_out + i];
    if (ref.place == Place::none) continue;
    const Region::Value& value = region_.value(ref.value);
    const Region::Value& root = region_.value(value.root);
    on_host_[value.root.index] = true;
    if (!root.device_reads || !root.sized || ref.bytes == 0) continue;
    void* at = r.addresses[step.first_out + i];
    device_at_[value.root.index] = at;
    stream_->upload(at, host_[value.root.index].tensor.data(), ref.bytes);
  }
}

}  // namespace pelton::runtime
