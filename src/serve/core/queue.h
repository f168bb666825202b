// SPDX-License-Identifier: Apache-2.0
// The waiting requests of one model version, by priority. Not synchronised: the scheduler holds its lock.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "serve/core/model_config.h"
#include "serve/core/request.h"

namespace pelton::serve {

class RequestQueue {
 public:
  // `bound` limits the requests that wait in total, whatever the policies say.
  RequestQueue(const std::optional<BatchingConfig>& config, size_t bound);

  struct Dropped {
    RequestPtr request;
    Error error;
  };
  // Takes the request, or returns the error (busy, cancelled, deadline) and leaves it with the caller.
  std::optional<Error> push(RequestPtr& request, Clock::time_point now, std::vector<Dropped>& dropped);
  // Removes requests whose client is gone or whose time is over; the caller answers what it finds in
  // `dropped`.
  void expire(Clock::time_point now, std::vector<Dropped>& dropped);
  // When the next request times out; nullopt if none has a limit. Linear in size().
  std::optional<Clock::time_point> next_expiry() const;

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // The i-th request in the order of service; i < size().
  const Request& at(size_t i) const;
  Clock::time_point oldest() const;  // enqueue time of the longest-waiting request
  // The first n in the order of service, less those that are dropped now.
  std::vector<RequestPtr> take(size_t n, Clock::time_point now, std::vector<Dropped>& dropped);
  std::vector<RequestPtr> take_all();

 private:
  struct Entry {
    RequestPtr request;
    std::optional<Clock::time_point> expires;
    bool delay = false;  // on expiry step behind the others instead of failing
  };
  struct Level {
    QueuePolicy policy;
    std::deque<Entry> waiting, delayed;
    size_t size() const { return waiting.size() + delayed.size(); }
  };
  Level& level_of(const Request& r);
  std::optional<Error> gone(const Request& r, Clock::time_point now) const;
  std::optional<Error> verdict(const Entry& e, Clock::time_point now) const;
  void sweep(Clock::time_point now, std::vector<Dropped>& dropped);

  uint64_t levels_count_ = 0, default_level_ = 0;
  size_t bound_, size_ = 0;
  Clock::time_point last_sweep_{};
  std::map<uint64_t, Level> levels_;  // 1 is served first; without priorities the only level is 0
};

}  // namespace pelton::serve
