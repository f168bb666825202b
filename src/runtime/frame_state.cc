// SPDX-License-Identifier: Apache-2.0
// State slots of a frame, and what stateful kernels keep between runs.
#include "runtime/frame.h"

namespace pelton::runtime {

using namespace ir;

namespace {

Tensor initial_value(const Slot& slot) {
  if (slot.initial.defined()) return slot.initial;
  auto dims = as_dims(slot.type.shape);
  if (!dims)
    fail(ErrorCode::bad_shape, cat("state slot '", slot.name, "' has no initial value and no fixed shape"));
  return Tensor::zeros(slot.type.dtype, *dims);
}

}  // namespace

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

void* Frame::kept_memory(const Step& step) {
  const Dims bytes{step.stateful->context_bytes()};
  Tensor& kept = kept_memory_[step.node.index];
  if (!kept.defined() || kept.dims() != bytes) kept = aligned(Tensor::zeros(DType::u8, bytes));
  return kept.mutable_data();
}

void Frame::forget_kept_memory() {
  kept_memory_.clear();
  for (auto& [region, frame] : bodies_) frame->forget_kept_memory();
}

}  // namespace pelton::runtime
