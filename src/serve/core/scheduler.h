// SPDX-License-Identifier: Apache-2.0
// Schedulers: how the accepted requests of one model version reach its engine.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "serve/core/batch_runner.h"
#include "serve/core/engine.h"
#include "serve/core/queue.h"
#include "serve/core/rate_limiter.h"
#include "serve/core/stats.h"
#include "serve/core/tracing.h"

namespace pelton::serve {

// Bounds and services that all models share.
struct Limits {
  size_t queue = 4096;                   // waiting requests of one model
  size_t ensemble_inflight = 256;        // requests inside one ensemble
  std::shared_ptr<ResponseCache> cache;  // null: off
  std::shared_ptr<RateLimiter> limiter;  // null: off
  std::shared_ptr<Tracer> tracer;        // null: no tracing
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  // Takes over the request; every outcome, errors included, goes to its callback.
  virtual void submit(RequestPtr request) = 0;
  // Answers what still waits, and whatever comes later, with `busy`. Running work goes on.
  virtual void stop() = 0;
};

// A queue and the model's instances, one thread each, started by the first request. With batching, a batch is
// formed at the moment an instance is free. An instance of some depth takes further work while it runs,
// unless another one is idle. Engines that are instant run in the submitting thread.
class InstanceScheduler : public Scheduler {
 public:
  // `config` outlives the scheduler.
  InstanceScheduler(const ModelConfig& config, std::shared_ptr<Engine> engine,
                    std::shared_ptr<ModelStats> stats, Limits limits, FinishResponse finish);
  ~InstanceScheduler() override;  // stops and waits for running batches
  void submit(RequestPtr request) override;
  void stop() override;

 private:
  struct Lane {
    std::unique_ptr<Instance> instance;
    std::condition_variable wake;
    bool waiting = false;  // its thread waits and has not been called
    bool coming = false;   // idle, and called or just started: it has not looked at the queue yet
    int running = 0;       // executions under way
  };

  void work(int index);
  // Holding the lock:
  Lane* idlest_waiting();
  void call(Lane& lane);
  bool has_room(Lane& lane) const;
  bool asked_for(size_t n) const;  // one of the first n requests comes from a model that waits for it
  void finished(Lane& lane);
  // Holding the lock: how many of the first requests to run now; 0 and a time to look again at if it pays to
  // wait for more.
  size_t plan_batch(Clock::time_point now, Clock::time_point& look_again) const;
  void run(Lane& lane, Batch&& batch);
  void leave(Batch&& batch);
  void drop(std::vector<RequestQueue::Dropped>& dropped);

  const ModelConfig& config_;
  const std::optional<BatchingConfig>& batching_;
  const int instance_count_;
  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<ModelStats> stats_;
  BatchRunner runner_;  // outlives the instances, which may answer through it
  std::vector<std::unique_ptr<RateLimiter::Ticket>> tickets_;  // by instance; empty: no limits
  std::unique_ptr<Instance> shared_;                           // instant engines
  std::vector<std::unique_ptr<Lane>> lanes_;

  std::mutex mutex_;
  std::condition_variable drained_;
  size_t coming_ = 0;  // lanes
  RequestQueue queue_;
  std::vector<std::thread> threads_;
  bool stopping_ = false;
  uint64_t next_ticket_ = 0;

  std::mutex order_mutex_;  // preserve_ordering: batches leave in the order of their tickets
  std::map<uint64_t, Batch> finished_;
  uint64_t next_out_ = 0;
  bool delivering_ = false;
};

}  // namespace pelton::serve
