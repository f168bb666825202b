// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_frame.h"

#include <algorithm>
#include <cstring>

#include "device/fault.h"

namespace pelton::runtime {

using namespace ir;

DeviceFrame::DeviceFrame(const Region& region)
    : Frame(region), device_(region.options().device), ready_(region.segments().size()) {
  const Graph& g = region.graph();
  device_->activate();
  own_stream_ = device_->make_stream();
  stream_ = own_stream_.get();
  empty_ = device::Memory(device_, 256, "empty tensors");
  auto words = static_cast<int64_t>(region.nodes().size() * sizeof(uint32_t));
  faults_ = device::Memory(device_, words, "reports of kernels", device::Memory::Where::pinned);
  clear_faults();
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

void DeviceFrame::run_segment(size_t segment, const RunOptions& options) {
  require_late_checks(segment);
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

void DeviceFrame::recover() {
  forget_host_state();
  // Copies in flight read and write host memory that the caller may free.
  try {
    stream_->synchronize();
  } catch (const Error&) {
  }
  // What its kernels reported goes with the run. A caller's stream may still owe reports of the runs before.
  if (stream_ == own_stream_.get()) clear_faults();
}

void DeviceFrame::poison_results() {
  for (const device::Memory& memory : result_memory_)
    if (memory.bytes() > 0) stream_->fill(memory.get(), kPoison, memory.bytes());
  for (const Bound& bound : device_outputs_)
    if (bound.data && bound.bytes > 0) stream_->fill(bound.data, kPoison, bound.bytes);
}

}  // namespace pelton::runtime
