// SPDX-License-Identifier: Apache-2.0
#include "runtime/executable_retune.h"

#include "base/log.h"
#include "runtime/executable_pool.h"
#include "runtime/retuner.h"

namespace pelton::runtime {

int64_t Executable::choose_anew(const std::string& why) {
  const bool timed = options_.retuner && !plan_->has_option(kDeterministic);
  Retuned r;
  if (timed)
    r = options_.retuner->known(*plan_, target_);
  else
    r.choices = choose_all(plan_->graph, registry_, target_);
  choices_ = std::move(r.choices);
  std::string how = "the first that take each node";
  if (timed && r.open == 0) how = "as timed on this machine before";
  if (timed && r.open > 0 && options_.retune) how = cat(r.open, " nodes are timed while it runs");
  notes_.push_back(cat(why, ": implementations are chosen anew (", how, "), its fusions and layouts stay"));
  return r.open;
}

void Executable::start_retuning() {
  retuning_ = std::make_unique<Retuning>();
  Retuning* const shared = retuning_.get();  // which the executable lets go of before the thread has ended
  shared->thread = std::thread([this, shared] {
    std::shared_ptr<Executable> next;
    try {
      Retuned r = options_.retuner->time(*plan_, target_, shared->stop);
      if (!shared->stop) {
        auto plan = std::make_shared<Plan>(*plan_);
        plan->choices = std::move(r.choices);
        plan->target = target_;
        ExecutableOptions options = options_;
        options.retune = false;
        next.reset(new Executable(plan, registry_, target_, options));
        next->notes_ = notes_;
        next->notes_.push_back(std::move(r.note));
        next->region_->prepare_as(*region_);
      }
    } catch (const std::exception& e) {
      // What runs goes on running.
      log_warn(cat("timing the plan for this machine ended: ", e.what()));
      next = nullptr;
    }
    if (next) log_info(next->notes_.back());
    {
      std::lock_guard lock(shared->mutex);
      shared->next = next;
      shared->done = true;
    }
    shared->ended.notify_all();
    if (!next) return;
    std::vector<std::unique_ptr<Frame>> unused;
    {
      std::lock_guard lock(pool_->mutex);
      unused.swap(pool_->free);
      pool_->made -= static_cast<int64_t>(unused.size());
    }
    pool_->returned.notify_all();  // who waits for a context takes one of the next
    unused.clear();
    region_->forget_programs();
  });
}

bool Executable::retuning() const {
  if (!retuning_) return false;
  std::lock_guard lock(retuning_->mutex);
  return !retuning_->done;
}

void Executable::wait_until_tuned() const {
  if (!retuning_) return;
  std::unique_lock lock(retuning_->mutex);
  retuning_->ended.wait(lock, [&] { return retuning_->done; });
}

std::shared_ptr<const Executable> Executable::follower() const {
  if (!retuning_) return nullptr;
  std::lock_guard lock(retuning_->mutex);
  return retuning_->next;
}

const Executable& Executable::current() const {
  const auto next = follower();  // which lives as long as this one
  return next ? *next : *this;
}

void Context::follow() {
  if (!executable_->graph().slots.empty()) return;
  const auto next = executable_->follower();
  if (!next) return;
  try {
    Context other = next->take(0);
    other.frame_->take_over(*frame_);
    *this = std::move(other);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::busy) throw;  // all are taken: this one runs as before
  }
}

}  // namespace pelton::runtime
