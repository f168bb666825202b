// SPDX-License-Identifier: Apache-2.0
#include "serve/core/queue.h"

#include <algorithm>

namespace pelton::serve {

RequestQueue::RequestQueue(const std::optional<BatchingConfig>& config, size_t bound) : bound_(bound) {
  if (!config) {
    levels_[0];
    return;
  }
  levels_count_ = config->priority_levels;
  default_level_ = config->default_priority;
  for (uint64_t l = levels_count_ ? 1 : 0; l <= levels_count_; ++l) {
    auto own = config->priority_policies.find(l);
    levels_[l].policy = own != config->priority_policies.end() ? own->second : config->default_policy;
  }
}

RequestQueue::Level& RequestQueue::level_of(const Request& r) {
  if (!levels_count_) return levels_.begin()->second;
  const uint64_t wanted = r.priority == 0 || r.priority > levels_count_ ? default_level_ : r.priority;
  return levels_.at(wanted);
}

std::optional<Error> RequestQueue::gone(const Request& r, Clock::time_point now) const {
  if (r.cancelled()) return Error(ErrorCode::cancelled, "the request was cancelled", r.model);
  if (r.expired(now))
    return Error(ErrorCode::deadline, "the request's deadline passed in the queue", r.model);
  return std::nullopt;
}

std::optional<Error> RequestQueue::push(RequestPtr& request, Clock::time_point now,
                                        std::vector<Dropped>& dropped) {
  if (auto error = gone(*request, now)) return error;
  Level& level = level_of(*request);
  const size_t limit = level.policy.max_queue_size ? level.policy.max_queue_size : bound_;
  if (level.size() >= limit || size_ >= bound_)
    sweep(now, dropped);  // places of those who have gone are free
  if (level.size() >= limit || size_ >= bound_)
    return Error(ErrorCode::busy,
                 cat("the queue is full: ", level.size(), " requests wait, max_queue_size is ",
                     std::min<size_t>(limit, bound_)),
                 request->model, "retry later");
  Entry e;
  uint64_t timeout_us = level.policy.default_timeout_us;
  if (level.policy.allow_override && request->timeout_us && (!timeout_us || request->timeout_us < timeout_us))
    timeout_us = request->timeout_us;
  // A time-out beyond a year is none; the addition below must not overflow.
  if (timeout_us && timeout_us < uint64_t{31'536'000'000'000})
    e.expires = now + std::chrono::microseconds(timeout_us);
  e.delay = level.policy.delay_on_timeout;
  request->enqueued = now;
  e.request = std::move(request);
  level.waiting.push_back(std::move(e));
  ++size_;
  return std::nullopt;
}

std::optional<Error> RequestQueue::verdict(const Entry& e, Clock::time_point now) const {
  if (auto error = gone(*e.request, now)) return error;
  if (e.expires && now >= *e.expires && !e.delay)
    return Error(ErrorCode::busy, "the request's time in the queue ran out", e.request->model, "retry later");
  return std::nullopt;
}

void RequestQueue::expire(Clock::time_point now, std::vector<Dropped>& dropped) {
  // A long queue is swept at most every 2 ms; take() looks at what it hands out in any case.
  if (size_ > 256 && now - last_sweep_ < std::chrono::milliseconds(2)) return;
  sweep(now, dropped);
}

void RequestQueue::sweep(Clock::time_point now, std::vector<Dropped>& dropped) {
  last_sweep_ = now;
  for (auto& [unused, level] : levels_) {
    for (auto* list : {&level.waiting, &level.delayed}) {
      const bool any = std::any_of(list->begin(), list->end(), [&](const Entry& e) {
        return (e.expires && now >= *e.expires) || gone(*e.request, now);
      });
      if (!any) continue;  // the common case moves nothing
      std::deque<Entry> kept, moved;
      for (Entry& e : *list) {
        if (auto error = verdict(e, now)) {
          dropped.push_back({std::move(e.request), *error});
          --size_;
        } else if (e.expires && now >= *e.expires) {
          e.expires.reset();
          moved.push_back(std::move(e));
        } else {
          kept.push_back(std::move(e));
        }
      }
      *list = std::move(kept);
      for (Entry& e : moved) level.delayed.push_back(std::move(e));
    }
  }
}

std::optional<Clock::time_point> RequestQueue::next_expiry() const {
  std::optional<Clock::time_point> next;
  auto consider = [&](const std::optional<Clock::time_point>& t) {
    if (t && (!next || *t < *next)) next = t;
  };
  for (const auto& [unused, level] : levels_)
    for (const auto* list : {&level.waiting, &level.delayed})
      for (const Entry& e : *list) {
        consider(e.expires);
        consider(e.request->deadline);
      }
  return next;
}

const Request& RequestQueue::at(size_t i) const {
  for (const auto& [unused, level] : levels_)
    for (const auto* list : {&level.waiting, &level.delayed}) {
      if (i < list->size()) return *(*list)[i].request;
      i -= list->size();
    }
  PELTON_CHECK(false, "queue index past the end");
  __builtin_unreachable();
}

Clock::time_point RequestQueue::oldest() const {
  Clock::time_point t = Clock::time_point::max();
  for (const auto& [unused, level] : levels_)
    for (const auto* list : {&level.waiting, &level.delayed})
      if (!list->empty()) t = std::min(t, list->front().request->enqueued);
  return t;
}

std::vector<RequestPtr> RequestQueue::take(size_t n, Clock::time_point now, std::vector<Dropped>& dropped) {
  std::vector<RequestPtr> out;
  out.reserve(n);
  for (auto& [unused, level] : levels_)
    for (auto* list : {&level.waiting, &level.delayed})
      for (; n > 0 && !list->empty(); --n) {
        Entry& e = list->front();
        if (auto error = verdict(e, now))
          dropped.push_back({std::move(e.request), *error});
        else
          out.push_back(std::move(e.request));
        list->pop_front();
        --size_;
      }
  return out;
}

std::vector<RequestPtr> RequestQueue::take_all() {
  std::vector<RequestPtr> out;
  for (auto& [unused, level] : levels_)
    for (auto* list : {&level.waiting, &level.delayed}) {
      for (Entry& e : *list) out.push_back(std::move(e.request));
      list->clear();
    }
  size_ = 0;
  return out;
}

}  // namespace pelton::serve
