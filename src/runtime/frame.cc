// SPDX-License-Identifier: Apache-2.0
#include "runtime/frame.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/clock.h"
#include "base/huge_pages.h"
#include "base/interrupt.h"
#include "base/thread_pool.h"
#include "interp/interpreter.h"
#include "ir/fact.h"
#include "ir/op.h"
#include "runtime/device_frame.h"

namespace pelton::runtime {

using namespace ir;

namespace {

// Read as f32 or f64 this is a NaN, as an index it is out of any range.
constexpr int kPoison = 0xFF;
// Below this a run does not enter the thread pool: kernels this small work on the calling thread.
constexpr int64_t kSmallRunBytes = 64 << 10;

bool poison_wanted() {
  const char* v = std::getenv("PELTON_POISON");
  return v && *v && std::strcmp(v, "0") != 0;
}

// Stands for empty tensors, so that only absent operands are null.
alignas(64) std::byte empty_tensor[64];

Tensor initial_value(const Slot& slot) {
  if (slot.initial.defined()) return slot.initial;
  auto dims = as_dims(slot.type.shape);
  if (!dims)
    fail(ErrorCode::bad_shape, cat("state slot '", slot.name, "' has no initial value and no fixed shape"));
  return Tensor::zeros(slot.type.dtype, *dims);
}

bool all_known(const Dim& d, const SymbolValues& symbols) {
  std::set<std::string> names;
  d.collect_symbols(names);
  return std::all_of(names.begin(), names.end(), [&](const auto& n) { return symbols.count(n) != 0; });
}

// A size whose maker is gone may still be named by a check: N of "N == 2*M" once M is known.
void solve_sizes(const std::vector<Fact>& checks, SymbolValues& symbols) {
  auto solve = [&](const Dim& unknown, const Dim& by) {
    auto symbol = unknown.as_symbol();
    if (!symbol || symbols.count(*symbol) || !all_known(by, symbols)) return false;
    symbols[*symbol] = by.eval(symbols);
    return true;
  };
  for (bool found = true; found;) {
    found = false;
    for (const Fact& f : checks)
      if (f.relation == Fact::Relation::equal) found |= solve(f.left, f.right) || solve(f.right, f.left);
  }
}

std::string input_place(const Graph& g, size_t index) {
  return cat("input '", g[g.inputs[index]].name, "'");
}

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

void Frame::reset_state() {
  const Graph& g = region_.graph();
  state_.resize(g.slots.size());
  spare_.assign(g.slots.size(), {});
  shared_.assign(g.slots.size(), {});
  for (size_t i = 0; i < g.slots.size(); ++i) state_[i] = aligned(initial_value(g.slots[i]));
  sizes_known_ = false;
}

const Tensor& Frame::state(size_t slot) {
  const Shared& s = shared_[owner_[slot]];
  return s.with ? s.with->state(s.slot) : own_state(owner_[slot]);
}

const Tensor& Frame::own_state(size_t slot) const {
  const Tensor& t = state_[slot];
  if (!t.data() && t.count() > 0)
    fail(ErrorCode::usage, "was shared and has no value of its own",
         cat("state slot '", region_.graph().slots[slot].name, "'"), "share or set it again before the run");
  return t;
}

void Frame::share_state(size_t slot, Frame& with, size_t of) {
  const Slot &mine = region_.graph().slots[slot], &other = with.region_.graph().slots[of];
  if (!(mine.type == other.type) || region_.device() != with.region_.device() || mine.next)
    fail(ErrorCode::usage,
         cat("cannot be shared: it is ", mine.type.str(), mine.next ? ", which changes, " : ", ",
             "and the other is ", other.type.str()),
         cat("state slot '", mine.name, "'"),
         "share a slot of the same type, on one device, that the run only reads");
  const size_t o = owner_[slot];
  shared_[o] = {&with, with.owner_[of]};
  // Its own copy goes; the sizes stay known.
  state_[o] = Tensor::borrow(mine.type.dtype, with.state_[with.owner_[of]].dims(), nullptr, nullptr);
}

void Frame::end_sharing() {
  for (size_t i = 0; i < shared_.size(); ++i)
    if (shared_[i].with) shared_[i] = {};
}

void* Frame::settled_state(size_t) {
  return nullptr;
}

void Frame::set_state(size_t slot, Tensor value) {
  const Slot& s = region_.graph().slots[slot];
  if (value.dtype() != s.type.dtype || value.rank() != s.type.rank())
    fail(ErrorCode::bad_type, cat("expected ", s.type.str(), ", got ", value.str()),
         cat("state slot '", s.name, "'"));
  state_[owner_[slot]] = aligned(value);
  shared_[owner_[slot]] = {};
  sizes_known_ = false;
}

void Frame::set_input(size_t index, HostValue value) {
  const Graph& g = region_.graph();
  const Type& type = g.type(g.inputs[index]);
  HostValue& old = inputs_[index];
  if (value.kind != type.kind) fail(ErrorCode::bad_type, cat("expected ", type.str()), input_place(g, index));
  if (type.is_tensor()) {
    const Tensor& t = value.tensor;
    if (!t.defined()) fail(ErrorCode::usage, "has no value", input_place(g, index));
    if (t.dtype() != type.dtype)
      fail(ErrorCode::bad_type, cat("expected ", type.str(), ", got ", t.str()), input_place(g, index));
    if (!old.tensor.defined() || old.tensor.dims() != t.dims()) sizes_known_ = false;
  }
  old = std::move(value);
}

void Frame::bind_output(size_t index, void* data, int64_t bytes) {
  bound_[index] = {data, bytes};
}

void Frame::bind_device_input(size_t index, Dims, const void*) {
  fail(ErrorCode::usage, "the plan runs on the CPU, which has no device memory",
       input_place(region_.graph(), index));
}

void Frame::bind_device_output(size_t index, void*, int64_t) {
  fail(ErrorCode::usage, "the plan runs on the CPU, which has no device memory",
       cat("output '", region_.graph().output_name(index), "'"));
}

void Frame::find_sizes(const SymbolValues& outer) {
  if (sizes_known_ && outer == outer_) {
    if (region_.segments().size() > 1) symbols_ = base_symbols_;
    return;
  }
  const Graph& g = region_.graph();
  outer_ = outer;
  symbols_ = outer;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    const Type& type = g.type(g.inputs[i]);
    if (!type.is_tensor()) continue;
    if (!type.ranked)
      fail(ErrorCode::bad_shape, cat("the plan does not know the rank of ", type.str()), input_place(g, i),
           "compile the model with --shape name=AxBxC");
    if (!inputs_[i].tensor.defined()) fail(ErrorCode::usage, "has no value", input_place(g, i));
    interp::bind_symbols(type, inputs_[i].tensor.dims(), symbols_, input_place(g, i));
  }
  for (size_t i = 0; i < g.slots.size(); ++i)
    interp::bind_symbols(g.slots[i].type, state_[owner_[i]].dims(), symbols_,
                         cat("state slot '", g.slots[i].name, "'"));
  for (const auto& [name, value] : symbols_)
    if (auto it = g.symbols->ranges.find(name); it != g.symbols->ranges.end() && region_.depth() == 0)
      if (value < it->second.min || value > it->second.max)
        fail(ErrorCode::bad_shape,
             cat("size ", name, " = ", value, " is outside the compiled range ", it->second.min, " to ",
                 it->second.max),
             cat("graph '", g.name, "'"), "compile the model with a wider --shape range");
  solve_sizes(g.checks, symbols_);
  require_checks(g, symbols_);
  base_symbols_ = symbols_;
  loaded_[0].program.reset();
  sizes_known_ = true;
}

bool Frame::breaks_a_guard() const {
  for (const Fact& f : region_.graph().guards) {
    if (all_known(f.left, symbols_) && all_known(f.right, symbols_) && !f.holds(symbols_)) return true;
  }
  return false;
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
  const void* at = nullptr;
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
      at = host_[ref.index].tensor.data();
      break;
    case Place::arena:
      at = arena_ + ref.offset;
      break;
  }
  return at ? const_cast<void*>(at) : empty_tensor;
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
      if (b.bytes != ref.bytes)
        fail(ErrorCode::bad_shape,
             cat("the bound buffer has ", b.bytes, " bytes, the result ",
                 Type::tensor(type.dtype, to_shape(ref.dims)).str(), " needs ", ref.bytes),
             cat("output '", g.output_name(static_cast<size_t>(output)), "'"));
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

void Frame::run(const RunOptions& options, const SymbolValues& outer) {
  find_sizes(outer);
  for (size_t s = 0; s < loaded_.size(); ++s) run_segment(s, options);
  finish();
}

void Frame::run_segment(size_t segment, const RunOptions& options) {
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

void Frame::run_step(const Loaded& l, const Step& step, int64_t slice, const RunOptions& options) {
  check_interrupts(step, options);
  int64_t start_ns = options.observe ? now_ns() : 0;
  if (step.kernel)
    run_kernel(l, step, options);
  else
    run_reference(l, step, options);
  if (options.observe) report(l, step, start_ns, now_ns(), options, slice);
}

void Frame::move_to_slice(Loaded& l, int64_t slice) {
  for (uint32_t r : l.program->slices.moved) {
    const Ref& ref = l.program->refs[r];
    l.addresses[r] = static_cast<std::byte*>(address(ref)) + slice * ref.slice_bytes;
  }
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

void* Frame::kept_memory(const Step& step) {
  const Dims bytes{step.stateful->context_bytes()};
  Tensor& kept = kept_memory_[step.node.index];
  if (!kept.defined() || kept.dims() != bytes) kept = aligned(Tensor::zeros(DType::u8, bytes));
  return kept.mutable_data();
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

void Frame::forget_kept_memory() {
  kept_memory_.clear();
  for (auto& [region, frame] : bodies_) frame->forget_kept_memory();
}

void Frame::copy_to_bound(size_t i) {
  const Graph& g = region_.graph();
  const Bound& b = bound_[i];
  if (!b.data) return;
  const Tensor& t = outputs_[i].tensor;
  std::string where = cat("output '", g.output_name(i), "'");
  if (!t.defined() || t.dtype() == DType::string)
    fail(ErrorCode::bad_type, cat("a result of type ", g.type(g.outputs[i]).str(), " cannot be bound"),
         where);
  if (t.bytes() != b.bytes)
    fail(ErrorCode::bad_shape,
         cat("the bound buffer has ", b.bytes, " bytes, the result ", t.str(), " needs ", t.bytes()), where);
  if (b.bytes) std::memmove(b.data, t.data(), static_cast<size_t>(b.bytes));
}

void Frame::adopt_outputs(std::vector<HostValue> outputs) {
  outputs_ = std::move(outputs);
  for (size_t i = 0; i < outputs_.size(); ++i) copy_to_bound(i);
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
