// SPDX-License-Identifier: Apache-2.0
#include "serve/core/rate_limiter.h"

#include <algorithm>

#include "base/error.h"

namespace pelton::serve {

uint64_t RateLimiter::amount(const std::string& name) const {
  if (auto it = given_.find(name); it != given_.end()) return it->second;
  uint64_t most = 0;
  for (const auto& [n, count] : needs_)
    if (n == name) most = std::max(most, count);
  return most;
}

bool RateLimiter::fits(const RateNeed& need) const {
  return std::all_of(need.resources.begin(), need.resources.end(), [&](const RateResource& r) {
    const auto held = held_.find(r.name);
    return (held == held_.end() ? 0 : held->second) + r.count <= amount(r.name);
  });
}

// Whether `t`, if it ran now, would take what `waiting` waits for: a large need would wait for ever if small
// ones that overlap always left too little of it.
bool RateLimiter::in_the_way(const RateNeed& t, const RateNeed& waiting) const {
  return std::any_of(t.resources.begin(), t.resources.end(), [&](const RateResource& taken) {
    return std::any_of(waiting.resources.begin(), waiting.resources.end(), [&](const RateResource& r) {
      const auto held = held_.find(r.name);
      return r.name == taken.name &&
             (held == held_.end() ? 0 : held->second) + taken.count + r.count > amount(r.name);
    });
  });
}

bool RateLimiter::first(const Ticket& t) const {
  return std::none_of(waiting_.begin(), waiting_.end(), [&](const Ticket* o) {
    return o != &t && o->cost() < t.cost() && (fits(o->need_) || in_the_way(t.need_, o->need_));
  });
}

std::unique_ptr<RateLimiter::Ticket> RateLimiter::join(const RateNeed& need, const std::string& model) {
  std::lock_guard lock(mutex_);
  for (const RateResource& r : need.resources)
    if (auto it = given_.find(r.name); it != given_.end() && it->second < r.count)
      fail(ErrorCode::limit,
           cat("an instance needs ", r.count, " of resource '", r.name, "', the server has ", it->second),
           model, "raise --rate-limit-resource");
  std::unique_ptr<Ticket> t(new Ticket(*this, need));
  // A newcomer starts level with the others: what they had before it came is no debt to it.
  uint64_t least = UINT64_MAX;
  for (const Ticket* o : tickets_) least = std::min(least, o->cost());
  if (!tickets_.empty()) t->runs_ = least / need.priority;
  tickets_.insert(t.get());
  for (const RateResource& r : need.resources) needs_.emplace(r.name, r.count);
  return t;
}

RateLimiter::Ticket::~Ticket() {
  std::lock_guard lock(limiter_.mutex_);
  limiter_.tickets_.erase(this);
  for (const RateResource& r : need_.resources)
    limiter_.needs_.erase(limiter_.needs_.find({r.name, r.count}));
}

void RateLimiter::Ticket::acquire() {
  std::unique_lock lock(limiter_.mutex_);
  limiter_.waiting_.insert(this);
  limiter_.changed_.wait(lock, [&] { return limiter_.fits(need_) && limiter_.first(*this); });
  limiter_.waiting_.erase(this);
  for (const RateResource& r : need_.resources) limiter_.held_[r.name] += r.count;
  ++runs_;
  limiter_.changed_.notify_all();
}

void RateLimiter::Ticket::release() {
  {
    std::lock_guard lock(limiter_.mutex_);
    for (const RateResource& r : need_.resources) limiter_.held_[r.name] -= r.count;
  }
  limiter_.changed_.notify_all();
}

}  // namespace pelton::serve
