// SPDX-License-Identifier: Apache-2.0
#include "serve/core/scheduler.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "serve/core/call_graph.h"
#include "serve/core/join.h"

namespace pelton::serve {
InstanceScheduler::InstanceScheduler(const ModelConfig& config, std::shared_ptr<Engine> engine,
                                     std::shared_ptr<ModelStats> stats, Limits limits, FinishResponse finish)
    : config_(config),
      batching_(config.batching),
      instance_count_(config.instances),
      engine_(std::move(engine)),
      stats_(std::move(stats)),
      runner_(config.name, stats_, limits.cache, std::move(finish)),
      queue_(config.batching, limits.queue) {
  if (limits.limiter)
    for (const RateNeed& need : config.rate_needs)
      tickets_.push_back(limits.limiter->join(need, config.name));
  if (engine_->instant() && !batching_ && tickets_.empty() &&
      config.optimization.priority == Priority::normal) {
    shared_ = engine_->make_instance(0);
    return;
  }
  for (int i = 0; i < instance_count_; ++i) {
    lanes_.push_back(std::make_unique<Lane>());
    lanes_.back()->instance = engine_->make_instance(i);
  }
}

InstanceScheduler::~InstanceScheduler() {
  stop();
  for (std::thread& t : threads_) t.join();
  std::unique_lock lock(mutex_);
  drained_.wait(lock, [&] {
    return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& l) { return l->running == 0; });
  });
}

void InstanceScheduler::stop() {
  std::vector<RequestPtr> left;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    left = queue_.take_all();
    for (auto& lane : lanes_) lane->wake.notify_one();
  }
  for (RequestPtr& r : left) {
    stats_->pending.fetch_sub(1, std::memory_order_relaxed);
    runner_.refuse(std::move(r),
                   Error(ErrorCode::busy, "the server is stopping", config_.name, "retry later"));
  }
}

void InstanceScheduler::submit(RequestPtr request) {
  if (shared_) {
    const auto now = Clock::now();
    request->enqueued = now;
    Batch batch;
    batch.requests.push_back(std::move(request));
    runner_.execute(*shared_, batch);
    return leave(std::move(batch));
  }
  std::optional<Error> refused;
  std::vector<RequestQueue::Dropped> dropped;
  std::vector<RequestPtr> stranded;
  {
    std::lock_guard lock(mutex_);
    if (stopping_)
      refused = Error(ErrorCode::busy, "the server is stopping", config_.name, "retry later");
    else if (request->wait)
      refused = request->wait->queued(engine_.get(), instance_count_, config_.name);
    if (!refused) refused = queue_.push(request, Clock::now(), dropped);
    if (!refused) {
      stats_->pending.fetch_add(1, std::memory_order_relaxed);
      Lane* lane = idlest_waiting();
      if (lane && lane->running == 0) {
        call(*lane);
      } else if (static_cast<int>(threads_.size()) < instance_count_) {
        const int index = static_cast<int>(threads_.size());
        try {
          threads_.emplace_back([this, index] { work(index); });
          lanes_[static_cast<size_t>(index)]->coming = true;
          ++coming_;
        } catch (const std::system_error&) {
          if (threads_.empty()) stranded = queue_.take_all();  // without any thread nobody would ever answer
        }
      } else if (lane && has_room(*lane)) {
        call(*lane);
      }
    }
  }
  for (RequestPtr& r : stranded) {
    stats_->pending.fetch_sub(1, std::memory_order_relaxed);
    runner_.refuse(std::move(r), Error(ErrorCode::out_of_memory, "no thread could be started for the model",
                                       config_.name, "lower the number of instances"));
  }
  drop(dropped);
  if (refused) runner_.refuse(std::move(request), *refused);
}

size_t InstanceScheduler::plan_batch(Clock::time_point now, Clock::time_point& look_again) const {
  if (!batching_) return 1;
  const int64_t target = batching_->preferred.empty() ? config_.max_batch : batching_->preferred.back();
  int64_t rows = 0;
  size_t n = 0, preferred_n = 0;
  bool closed = false;  // nothing that arrives later could join
  while (n < queue_.size() && !closed) {
    const Request& r = queue_.at(n);
    if (n > 0 && (rows + r.rows > config_.max_batch || !can_share(config_, queue_.at(0), r))) {
      closed = true;
      break;
    }
    rows += r.rows;
    ++n;
    if (std::binary_search(batching_->preferred.begin(), batching_->preferred.end(), rows)) preferred_n = n;
    closed = rows >= target;
  }
  const auto deadline =
      queue_.oldest() + std::chrono::microseconds(std::min<uint64_t>(batching_->max_delay_us, 3'600'000'000));
  if (stopping_ || now >= deadline) return n;
  if (preferred_n) return preferred_n;
  if (closed) return n;
  look_again = deadline;
  if (auto expiry = queue_.next_expiry()) look_again = std::min(look_again, *expiry);
  return 0;
}

InstanceScheduler::Lane* InstanceScheduler::idlest_waiting() {
  Lane* best = nullptr;
  for (auto& lane : lanes_)
    if (lane->waiting && (!best || lane->running < best->running)) best = lane.get();
  return best;
}

void InstanceScheduler::call(Lane& lane) {
  lane.waiting = false;
  if (lane.running == 0) lane.coming = true, ++coming_;
  lane.wake.notify_one();
}

bool InstanceScheduler::has_room(Lane& lane) const {
  return lane.running == 0 || lane.running < lane.instance->depth();
}

bool InstanceScheduler::asked_for(size_t n) const {
  for (size_t i = 0; i < n; ++i)
    if (queue_.at(i).wait) return true;
  return false;
}

void InstanceScheduler::finished(Lane& lane) {
  std::lock_guard lock(mutex_);
  --lane.running;
  if (lane.waiting && !queue_.empty()) call(lane);
  if (stopping_) drained_.notify_all();
}

void InstanceScheduler::work(int index) {
  set_priority(config_.optimization.priority);
  Lane& lane = *lanes_[static_cast<size_t>(index)];
  RateLimiter::Ticket* ticket = tickets_.empty() ? nullptr : tickets_[static_cast<size_t>(index)].get();
  bool held = false;
  auto give_back = [&] {
    if (held) ticket->release();
    held = false;
  };
  std::vector<RequestQueue::Dropped> dropped;
  std::unique_lock lock(mutex_);
  auto sleep = [&](std::optional<Clock::time_point> until) {
    give_back();
    lane.waiting = true;
    if (until)
      lane.wake.wait_until(lock, *until);
    else
      lane.wake.wait(lock);
    lane.waiting = false;
  };
  for (;;) {
    if (lane.coming) lane.coming = false, --coming_;
    if (!stopping_ && (queue_.empty() || !has_room(lane))) {
      sleep({});
      continue;
    }
    if (stopping_) return give_back();
    if (lane.running > 0 && queue_.size() <= coming_) {
      sleep({});  // those who come have nothing else to do
      continue;
    }
    if (lane.running > 0)
      if (Lane* idle = idlest_waiting(); idle && idle->running == 0) {
        call(*idle);
        sleep({});
        continue;
      }
    const auto now = Clock::now();
    queue_.expire(now, dropped);
    Batch batch;
    auto look_again = now;
    if (dropped.empty() && !queue_.empty()) {
      if (size_t n = plan_batch(now, look_again)) {
        if (lane.running > 0 && asked_for(n)) {
          sleep({});  // behind what runs here it could wait for its own caller
          continue;
        }
        if (ticket && !held) {  // the batch is formed once the resources are there
          lock.unlock();
          ticket->acquire();
          held = true;
          lock.lock();
          continue;
        }
        batch.requests = queue_.take(n, now, dropped);
        if (!batch.requests.empty()) batch.ticket = next_ticket_++, ++lane.running;
        stats_->pending.fetch_sub(static_cast<int64_t>(batch.requests.size()), std::memory_order_relaxed);
      } else {
        sleep(look_again);
        continue;
      }
    }
    lock.unlock();
    drop(dropped);
    if (!batch.requests.empty()) run(lane, std::move(batch));
    lock.lock();
    if (lane.running == 0) give_back();
  }
}

void InstanceScheduler::drop(std::vector<RequestQueue::Dropped>& dropped) {
  for (auto& d : dropped) {
    stats_->pending.fetch_sub(1, std::memory_order_relaxed);
    runner_.refuse(std::move(d.request), d.error);
  }
  dropped.clear();
}

void InstanceScheduler::run(Lane& lane, Batch&& batch) {
  if (!engine_->asks())
    for (const RequestPtr& r : batch.requests)
      if (r->wait) r->wait->done();
  const bool ordered = batching_ && batching_->preserve_ordering && instance_count_ > 1;
  if (lane.instance->depth() > 1 && tickets_.empty() && !ordered) {
    runner_.begin(*lane.instance, std::move(batch), [this, &lane](Batch&& answers) {
      runner_.deliver(std::move(answers));
      finished(lane);
    });
    return;
  }
  runner_.execute(*lane.instance, batch);
  leave(std::move(batch));
  finished(lane);
}

// Answers at once, or with preserve_ordering when all batches before it have been answered.
void InstanceScheduler::leave(Batch&& batch) {
  if (!batching_ || !batching_->preserve_ordering || instance_count_ == 1)
    return runner_.deliver(std::move(batch));

  std::unique_lock lock(order_mutex_);
  const uint64_t ticket = batch.ticket;
  finished_.emplace(ticket, std::move(batch));
  if (delivering_) return;  // the thread that delivers now takes this one too
  delivering_ = true;
  while (!finished_.empty() && finished_.begin()->first == next_out_) {
    Batch next = std::move(finished_.begin()->second);
    finished_.erase(finished_.begin());
    ++next_out_;
    lock.unlock();
    runner_.deliver(std::move(next));
    lock.lock();
  }
  delivering_ = false;
}

}  // namespace pelton::serve
