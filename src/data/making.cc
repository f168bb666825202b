// SPDX-License-Identifier: Apache-2.0
#include "data/making.h"

#include <algorithm>
#include <system_error>

#include "base/clock.h"
#include "base/thread_pool.h"

namespace pelton::data {
namespace {

constexpr int kReplacements = 16;  // other samples tried for a bad one

}  // namespace

bool is_fatal(ErrorCode c) {
  return c == ErrorCode::usage || c == ErrorCode::internal || c == ErrorCode::bad_name ||
         c == ErrorCode::out_of_memory || c == ErrorCode::cancelled;
}

Making::Making(SampleMaker m, Order o) : maker(std::move(m)), order(std::move(o)), pace(threads()) {}
Making::~Making() = default;

// Returns how long reads waited.
int64_t Making::process(Work& work, int64_t slot, bool on_host) {
  Order::Item& item = work.items[static_cast<size_t>(slot)];
  const PipelineSpec& spec = maker.spec();
  const int64_t asked = item.index;
  const GiveUpScope until(closing);
  int64_t waited_ns = 0;
  for (int attempt = 0;; ++attempt) {
    std::string op;
    Sample sample;
    try {
      sample = maker.make(item.index, work.epoch, &op, &waited_ns);
      op = sample.image ? "decode" : "batch";
      const int64_t before = now_ns();
      try {
        work.builder->put(slot, sample, pass && !on_host ? &pass->pictures() : nullptr);
      } catch (const Error& e) {
        throw e.within(sample.origin.str());
      }
      finish_ns.fetch_add(now_ns() - before, std::memory_order_relaxed);
      return waited_ns;
    } catch (const Error& e) {
      if (closing.load(std::memory_order_relaxed)) break;
      std::lock_guard lock(mutex);
      const bool raise = is_fatal(e.code()) || spec.bad_samples == "raise";
      work.bad.push_back({work.epoch, work.step, item.index, e.where(), op, e.message()});
      ++bad;
      if (reasons.size() < 1000) ++reasons[cat(op, ": ", e.message())];
      if (raise && !work.fatal)
        work.fatal = std::make_exception_ptr(e.within(cat("sample ", item.index, ", ", op)));
      if (raise || spec.bad_samples != "replace" || attempt == kReplacements) break;
      ++replacements;
    }
    const Draw draw(spec.seed, static_cast<uint64_t>(work.epoch), static_cast<uint64_t>(asked), 0xffffffffu);
    item.index = order.of_shard(work.epoch,
                                draw.below(static_cast<uint32_t>(attempt), order.shard_samples(work.epoch)));
  }
  work.blank[static_cast<size_t>(slot)] = 1;
  return waited_ns;
}

// Does one queued slot, of one batch only if that is given; false when there is none. Called and left with
// the lock held.
bool Making::run_one(std::unique_lock<std::mutex>& lock, const Work* only) {
  if (stopping || queue_.empty() || (only && only->queued == 0)) return false;
  auto at = queue_.begin();
  if (only) at = std::ranges::find(queue_, only, [](const Slot& s) { return s.work.get(); });
  const Slot slot = std::move(*at);
  queue_.erase(at);
  Work& work = *slot.work;
  const int64_t begun = now_ns();
  if (work.begun_ns == 0) work.begun_ns = begun;
  --work.queued;
  ++working_;
  lock.unlock();
  std::exception_ptr error;
  int64_t waited_ns = 0;
  try {
    waited_ns = process(work, slot.at, slot.on_host);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  --working_;
  samples += !slot.on_host;
  pace.sample_made(now_ns() - begun, waited_ns);
  if (waited_ns > 0) wake_helpers();
  if (error && !work.fatal) work.fatal = error;
  if (--work.left == 1 && pass && !stopping) {
    ++working_;
    pass->submit([self = shared_from_this(), shared = slot.work](DeviceLane lane) {
      self->run_on_device(shared, lane);
    });
  }
  done(work);
  return true;
}

// Something of the batch has come to its end.
void Making::done(Work& work) {
  if (work.left == 0) pace.batch_made(now_ns() - work.begun_ns);
  if (work.left == 0 || stopping || working_ == 0) changed.notify_all();
}

// The device's part of a batch whose slots are done. What its decoder does not take goes back to the pool.
void Making::run_on_device(const std::shared_ptr<Work>& work, DeviceLane lane) {
  std::vector<int64_t> again;
  std::exception_ptr error;
  try {
    again = work->builder->run_jobs(lane.decoder);
    if (again.empty()) {
      const bool all_kept = maker.spec().bad_samples != "skip" || std::ranges::count(work->blank, 1) == 0;
      work->builder->gather(lane.stream, work->blank, stays && all_kept);
    }
  } catch (...) {
    error = std::current_exception();
  }
  std::lock_guard lock(mutex);
  --working_;
  const auto back = std::ssize(again);
  decoded_on_device += work->builder->take_decoded();
  left_to_host += back + work->builder->take_refused();
  if (error && !work->fatal) work->fatal = error;
  if (again.empty()) {
    --work->left;
  } else if (!stopping) {
    work->left += back;
    work->queued += back;
    for (auto slot = again.rbegin(); slot != again.rend(); ++slot) queue_.push_front({work, *slot, true});
    start_runners(again.size());
    changed.notify_all();  // the consumer may do them
  }
  done(*work);
}

// Called with the lock held.
void Making::start_runners(size_t at_most) {
  for (const int wanted = static_cast<int>(std::min(static_cast<size_t>(threads() - 1), at_most));
       runners_ < wanted; ++runners_)
    spawn([self = shared_from_this()] {
      std::unique_lock inner(self->mutex);
      while (self->run_one(inner)) {
      }
      --self->runners_;
    });
}

void Making::enqueue(const std::shared_ptr<Work>& work) {
  std::lock_guard lock(mutex);
  work->queued = work->count;
  for (int64_t i = 0; i < work->count; ++i) queue_.push_back({work, i});
  start_runners(queue_.size());
  wake_helpers();
}

// The consumer works too while it waits, so the pool needs one thread fewer than there are.
void Making::wait_for(Work& work, std::unique_lock<std::mutex>& lock) {
  while (work.left > 0) {
    if (run_one(lock, &work)) continue;
    consumer_waits = true;
    wake_helpers();
    changed.wait(lock, [&] { return work.left == 0 || work.queued > 0; });
    consumer_waits = false;
  }
}

int Making::helpers_wanted() const {
  return pace.readers() + (consumer_waits || (consumer_away && pace.consumer_sleeps()) ? 1 : 0);
}

void Making::wake_helpers() {
  if (stopping || ended_ || queue_.empty()) return;
  const auto wanted = static_cast<size_t>(helpers_wanted());
  while (helpers_.size() < wanted && !no_more_helpers_) {
    try {
      helpers_.emplace_back([this] { help(); });
    } catch (const std::system_error&) {
      no_more_helpers_ = true;  // a limit of the machine; those there are go on
    }
  }
  if (static_cast<size_t>(helping_) < wanted) helpers_changed_.notify_all();
}

void Making::help() {
  std::unique_lock lock(mutex);
  for (;;) {
    helpers_changed_.wait(
        lock, [&] { return ended_ || (!stopping && !queue_.empty() && helping_ < helpers_wanted()); });
    if (ended_) return;
    ++helping_;
    run_one(lock);
    --helping_;
  }
}

void Making::drain() {
  std::unique_lock lock(mutex);
  stopping = true;
  closing = true;
  queue_.clear();
  changed.wait(lock, [&] { return working_ == 0; });
}

void Making::reopen() {
  std::lock_guard lock(mutex);
  stopping = false;
  closing = false;
}

void Making::end_helpers() {
  {
    std::lock_guard lock(mutex);
    ended_ = true;
  }
  helpers_changed_.notify_all();
  for (std::thread& t : helpers_) t.join();
}

}  // namespace pelton::data
