// SPDX-License-Identifier: Apache-2.0
// Where sequences are: on an instance, waiting for a place, gone.
#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "serve/core/sequence.h"

namespace pelton::serve {

void SequenceScheduler::place(const SequencePtr& s) {
  if (s->after && s->after->gone) s->after.reset();
  int best = -1;
  size_t best_free = 0;
  for (size_t i = 0; i < places_.size() && !s->after; ++i) {
    const size_t free = static_cast<size_t>(std::count(places_[i].begin(), places_[i].end(), nullptr));
    if (free > best_free) best = static_cast<int>(i), best_free = free;
  }
  if (best < 0) {
    backlog_.push_back(s);
    return;
  }
  auto& slots = places_[static_cast<size_t>(best)];
  s->instance = best;
  s->slot = static_cast<size_t>(std::find(slots.begin(), slots.end(), nullptr) - slots.begin());
  slots[s->slot] = s;
}

// Starts the thread of the sequence's instance, if it has one and that is not there; false if none could be
// started: then nothing of the sequence waits any more.
bool SequenceScheduler::ensure_worker(Sequence& s, Refusals& refusals) {
  const int i = s.instance;
  if (i < 0 || has_thread_[static_cast<size_t>(i)]) return true;
  try {
    threads_.emplace_back([this, i] { work(i); });
    has_thread_[static_cast<size_t>(i)] = 1;
    return true;
  } catch (const std::system_error&) {
    fail_waiting(s, Error(ErrorCode::out_of_memory, "no thread could be started for the model", config_.name),
                 refusals);
    return false;
  }
}

// Frees the sequence's place and gives it to the first that waits for one.
void SequenceScheduler::release(const SequencePtr& s, Refusals& refusals) {
  if (s->gone) return;
  s->gone = true;
  if (s->instance >= 0) places_[static_cast<size_t>(s->instance)][s->slot] = nullptr;
  std::erase(backlog_, s);
  if (auto it = newest_.find(s->id); it != newest_.end() && it->second == s) newest_.erase(it);
  std::deque<SequencePtr> waiting;
  waiting.swap(backlog_);
  for (const SequencePtr& next : waiting) {
    place(next);
    ensure_worker(*next, refusals);
  }
  wake_.notify_all();
}

void SequenceScheduler::fail_waiting(Sequence& s, const Error& error, Refusals& refusals) {
  for (RequestPtr& r : s.waiting) {
    --waiting_;
    stats_->pending.fetch_sub(1, std::memory_order_relaxed);
    refusals.push_back({std::move(r), error});
  }
  s.waiting.clear();
}

// Drops requests whose client is gone or whose time is over, and sequences that ended or idled too long.
void SequenceScheduler::sweep(Clock::time_point now, Refusals& refusals) {
  // With very many sequences not at every turn.
  if (backlog_.size() + places_.size() * slots_ > 1024 && now - last_sweep_ < std::chrono::milliseconds(1))
    return;
  last_sweep_ = now;
  std::vector<SequencePtr> all(backlog_.begin(), backlog_.end());
  for (auto& slots : places_)
    for (auto& s : slots)
      if (s) all.push_back(s);
  for (const SequencePtr& s : all) {
    if (s->gone) continue;
    for (auto it = s->waiting.begin(); it != s->waiting.end();) {
      std::optional<Error> why;
      if ((*it)->cancelled())
        why = Error(ErrorCode::cancelled, "the request was cancelled", config_.name);
      else if ((*it)->expired(now))
        why = Error(ErrorCode::deadline, "the request's deadline passed in the queue", config_.name);
      if (!why) {
        ++it;
        continue;
      }
      const bool first = !s->started && !s->running && it == s->waiting.begin();
      --waiting_;
      stats_->pending.fetch_sub(1, std::memory_order_relaxed);
      refusals.push_back({std::move(*it), *why});
      it = s->waiting.erase(it);
      if (!first) continue;
      s->closed = true;
      fail_waiting(*s,
                   Error(ErrorCode::bad_format, "the first request of the sequence was dropped", config_.name,
                         "begin the sequence again"),
                   refusals);
      break;
    }
    if (s->running || !s->waiting.empty()) continue;
    if (s->closed || idles(*s, now)) release(s, refusals);
  }
}

}  // namespace pelton::serve
