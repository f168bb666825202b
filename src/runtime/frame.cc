// SPDX-License-Identifier: Apache-2.0
#include "runtime/frame.h"

#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "base/huge_pages.h"
#include "base/interrupt.h"
#include "base/thread_pool.h"
#include "runtime/device_frame.h"

namespace pelton::runtime {

using namespace ir;

namespace {

bool poison_wanted() {
  const char* v = std::getenv("PELTON_POISON");
  return v && *v && std::strcmp(v, "0") != 0;
}

// Stands for empty tensors, so that only absent operands are null.
alignas(64) std::byte empty_tensor[64];

}  // namespace

std::unique_ptr<Frame> Frame::make(const Region& region) {
  if (region.device()) return std::make_unique<DeviceFrame>(region);
  return std::make_unique<Frame>(region);
}

Frame::Frame(const Region& region) : region_(region), poison_(poison_wanted()) {
  const Graph& g = region.graph();
  inputs_.resize(g.inputs.size());
  bound_.resize(g.outputs.size());
  host_.resize(g.value_count());
  loaded_.resize(region.segments().size());
  bound_root_.assign(g.value_count(), -1);
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    ValueId root = region.value(g.outputs[i]).root;
    if (region.value(root).place == Place::host && bound_root_[root.index] < 0)
      bound_root_[root.index] = static_cast<int32_t>(i);
  }
  for (size_t i = 0; i < g.slots.size(); ++i) {
    owner_.push_back(i);
    for (size_t j = 0; j < i; ++j)
      if (g.slots[j].name == g.slots[i].tied_to) owner_[i] = owner_[j];
  }
  Frame::reset_state();
}

Frame::~Frame() {
  drop_arena();
}

void Frame::drop_arena() {
  if (Budget* budget = region_.options().budget) budget->give(arena_bytes_);
  std::free(arena_);
  arena_ = nullptr;
  arena_bytes_ = 0;
}

void Frame::grow_arena(int64_t bytes) {
  if (bytes <= arena_bytes_) return;
  drop_arena();
  const auto alignment = static_cast<int64_t>(huge_alignment(static_cast<size_t>(bytes), kArenaAlignment));
  const int64_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (Budget* budget = region_.options().budget)
    budget->take(rounded, region_.packed_bytes(), cat("the arena of graph '", region_.graph().name, "'"));
  arena_ = static_cast<std::byte*>(
      std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(rounded)));
  if (!arena_ && region_.options().budget) region_.options().budget->give(rounded);
  if (!arena_)
    fail(ErrorCode::out_of_memory,
         cat("no ", rounded, " bytes for the arena of graph '", region_.graph().name, "'"));
  arena_bytes_ = rounded;
  prefer_huge_pages(arena_, static_cast<size_t>(rounded));
  if (poison_) std::memset(arena_, kPoison, static_cast<size_t>(rounded));
}

int64_t Frame::arena_bytes() const {
  int64_t bytes = arena_bytes_;
  for (const auto& [region, frame] : bodies_) bytes += frame->arena_bytes();
  return bytes;
}

Frame::Loaded& Frame::load(size_t segment) {
  Loaded& l = loaded_[segment];
  std::shared_ptr<const Program> program =
      segment == 0 && l.program ? l.program : region_.program(segment, symbols_);
  grow_arena(program->arena_bytes);
  if (l.program == program && l.arena == arena_) return l;
  l = {program, arena_, {}, {}};
  l.addresses.resize(program->refs.size());
  for (uint32_t i = 0; i < program->refs.size(); ++i) {
    const Ref& ref = program->refs[i];
    bool fixed = ref.place == Place::none || ref.place == Place::constant || ref.place == Place::arena;
    if (fixed)
      l.addresses[i] = address(ref);
    else
      l.moving.push_back(i);
  }
  return l;
}

void* Frame::address(const Ref& ref) {
  if (ref.place == Place::host) return address(ref, host_[ref.index].tensor.data());
  return address(ref, ref.place == Place::arena ? arena_ + ref.offset : nullptr);
}

void* Frame::address(const Ref& ref, const void* computed) {
  const void* at = computed;
  switch (ref.place) {
    case Place::none:
      return nullptr;
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
      break;
  }
  return at ? const_cast<void*>(at) : empty_tensor;
}

void Frame::run(const RunOptions& options, const SymbolValues& outer) {
  find_sizes(outer);
  for (size_t s = 0; s < loaded_.size(); ++s) run_segment(s, options);
  finish();
}

void Frame::run_segment(size_t segment, const RunOptions& options) {
  require_late_checks(segment);
  Loaded& l = load(segment);
  const Program& p = *l.program;
  allocate_results(p);
  for (uint32_t i : l.moving) l.addresses[i] = address(p.refs[i]);
  if (p.touched_bytes > kSmallRunBytes && region_.depth() == 0)
    run_in_pool([&] { run_steps(l, options); });
  else
    run_steps(l, options);
  for (ValueId v : region_.released_after(segment)) host_[v.index] = HostValue();
}

void Frame::check_interrupts(const Step& step, const RunOptions& options) const {
  if (options.cancel && options.cancel->load(std::memory_order_relaxed))
    fail(ErrorCode::cancelled, "the run was cancelled", cat("before ", region_.graph().describe(step.node)));
  throw_if_interrupted();
  if (options.deadline_ns && now_ns() > options.deadline_ns)
    fail(ErrorCode::deadline, "the deadline of the run has passed",
         cat("before ", region_.graph().describe(step.node)));
}

void Frame::run_steps(Loaded& l, const RunOptions& options) {
  const Program& p = *l.program;
  size_t freed = 0;
  for (uint32_t s = 0; s < p.steps.size(); ++s) {
    const Program::Slices& slices = p.slices;
    if (s == slices.first && slices.count > 1) {
      for (int64_t slice = 0; slice + 1 < slices.count; ++slice) {
        move_to_slice(l, slice);
        for (uint32_t inner = s; inner < slices.last; ++inner) run_step(l, p.steps[inner], slice, options);
      }
      move_to_slice(l, slices.count - 1);
    }
    run_step(l, p.steps[s], slices.holds(s) ? slices.count - 1 : -1, options);
    if (poison_)
      for (; freed < p.freed.size() && p.freed[freed].step == s; ++freed)
        std::memset(arena_ + p.freed[freed].offset, kPoison, static_cast<size_t>(p.freed[freed].bytes));
  }
}

void Frame::move_to_slice(Loaded& l, int64_t slice) {
  for (uint32_t r : l.program->slices.moved) {
    const Ref& ref = l.program->refs[r];
    l.addresses[r] = static_cast<std::byte*>(address(ref)) + slice * ref.slice_bytes;
  }
}

void Frame::run_step(const Loaded& l, const Step& step, int64_t slice, const RunOptions& options) {
  check_interrupts(step, options);
  int64_t start_ns = options.observe ? now_ns() : 0;
  if (step.kernel)
    run_kernel(l, step, options);
  else
    run_reference(l, step, options);
  if (options.observe) report(l, step, start_ns, now_ns(), options, slice);
}

void Frame::run_kernel(const Loaded& l, const Step& step, const RunOptions& options) {
  void* const* at = l.addresses.data();
  backend::RunArgs args;
  args.in = {at + step.first_in, step.in_count};
  args.out = {at + step.first_out, step.out_count};
  if (step.scratch_bytes) args.scratch = arena_ + step.scratch_offset;
  args.random = options.random;
  run_prepared(step, args);
}

void Frame::run_prepared(const Step& step, const backend::RunArgs& args) {
  if (step.stateful)
    step.stateful->run_with(args, kept_memory(step));
  else
    step.kernel->run(args);
}

}  // namespace pelton::runtime
