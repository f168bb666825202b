// SPDX-License-Identifier: Apache-2.0
// Shared resources that instances hold while they execute. Among the instances that wait, the one that has
// had the least, weighed by its priority, goes first.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "serve/core/model_config.h"

namespace pelton::serve {

class RateLimiter {
 public:
  // Amounts by name; for a name that is not given, the largest need of any instance.
  explicit RateLimiter(std::map<std::string, uint64_t> amounts) : given_(std::move(amounts)) {}

  class Ticket;
  // Announces an instance; limit error if it needs more than there can ever be.
  std::unique_ptr<Ticket> join(const RateNeed& need, const std::string& model);

  class Ticket {
   public:
    ~Ticket();
    void acquire();  // waits
    void release();

   private:
    friend class RateLimiter;
    Ticket(RateLimiter& limiter, RateNeed need) : limiter_(limiter), need_(std::move(need)) {}
    uint64_t cost() const { return runs_ * need_.priority; }
    RateLimiter& limiter_;
    const RateNeed need_;
    uint64_t runs_ = 0;
  };

 private:
  uint64_t amount(const std::string& name) const;
  bool fits(const RateNeed& need) const;
  bool in_the_way(const RateNeed& t, const RateNeed& waiting) const;
  bool first(const Ticket& t) const;

  const std::map<std::string, uint64_t> given_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multiset<std::pair<std::string, uint64_t>> needs_;  // of the instances announced
  std::map<std::string, uint64_t> held_;
  std::set<const Ticket*> waiting_, tickets_;
};

}  // namespace pelton::serve
