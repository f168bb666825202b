// SPDX-License-Identifier: Apache-2.0
// Sequences: requests that belong together by their correlation id, in order, one at a time, on one instance.
//
// A sequence lives in an object of its own that holds its waiting requests and its state; the id only finds
// the newest object. A START with an id in use begins a new object, which waits until the old one has gone,
// so requests and states of two sequences cannot mix, whatever times out in between. A request that is
// dropped before it runs leaves the state as it was; one that fails in the engine ends its sequence, since
// the state is unknown then; so does a START that never runs.
//
// Direct: a sequence keeps a slot of the batch, and slots without a request are filled where the model has a
// READY control. Oldest: batches are formed from the sequences that have waited longest. Iterative: each
// request is a sequence of its own and runs until it is done; its places in the batch are shared step by
// step.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "serve/core/batch_runner.h"
#include "serve/core/scheduler.h"

namespace pelton::serve {

std::string to_text(const SequenceId& id);  // for messages

class SequenceScheduler final : public Scheduler {
 public:
  // `config` outlives the scheduler; initial states are read from `dir`.
  SequenceScheduler(const ModelConfig& config, const ModelDir& dir, std::shared_ptr<Engine> engine,
                    std::shared_ptr<ModelStats> stats, Limits limits, FinishResponse finish);
  ~SequenceScheduler() override;
  void submit(RequestPtr request) override;
  void stop() override;

 private:
  struct Sequence {
    SequenceId id;
    std::deque<RequestPtr> waiting;
    std::shared_ptr<Sequence> after;  // the sequence that had the id before and is still there
    int instance = -1;                // -1: waits for a place
    size_t slot = 0;
    bool running = false;
    bool started = false;  // its START has run
    bool closed = false;   // takes no more requests: it ends when its queue is empty
    bool gone = false;
    uint32_t steps = 0;                         // iterative
    size_t client_inputs = 0;                   // iterative: inputs before the server's own
    Clock::time_point last;                     // of the last request that came or ran
    std::map<std::string, TensorValue> states;  // by input; used by the thread that runs it
  };
  using SequencePtr = std::shared_ptr<Sequence>;
  struct Refusal {
    RequestPtr request;
    Error error;
  };
  using Refusals = std::vector<Refusal>;
  struct Turn {  // one execution
    Batch batch;
    std::vector<SequencePtr> sequences;  // null: a slot without a request
    std::vector<char> ends;              // the request carries END
  };

  void read_initial_states(const ModelDir& dir);

  // All of these hold the lock.
  std::optional<Error> accept(RequestPtr& request, Clock::time_point now, Refusals& refusals);
  bool idles(const Sequence& s, Clock::time_point now) const;
  bool fit_together(const Sequence& a, const Sequence& b) const;
  void place(const SequencePtr& s);
  bool ensure_worker(Sequence& s, Refusals& refusals);
  void release(const SequencePtr& s, Refusals& refusals);
  void sweep(Clock::time_point now, Refusals& refusals);
  void fail_waiting(Sequence& s, const Error& error, Refusals& refusals);
  std::vector<SequencePtr> plan(int instance, Clock::time_point now, Clock::time_point& look_again) const;
  Turn take(const std::vector<SequencePtr>& chosen);
  void put_back(Turn& turn, Refusals& refusals);

  void work(int instance);
  void run(Instance& instance, Turn& turn);
  void keep_states(BatchRun& run, Turn& turn);
  bool is_done(const BatchRun& run, size_t i, const Sequence& s) const;
  void add_controls(Request& r, const SequenceId& id, bool start, bool end, bool ready) const;
  RequestPtr make_filler(const Request& like) const;
  void answer(Refusals& refusals);

  const ModelConfig& config_;
  const SequenceConfig& sequence_;
  const size_t slots_;  // sequences of one instance
  const size_t batch_;  // requests of one execution
  const size_t bound_;
  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<ModelStats> stats_;
  std::map<std::string, TensorValue> initial_;  // states by input, with the batch dimension
  BatchRunner runner_;
  std::vector<std::unique_ptr<Instance>> instances_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<SequenceId, SequencePtr> newest_;      // by id; not iterative ones
  std::vector<std::vector<SequencePtr>> places_;  // [instance][slot]; null: free
  std::deque<SequencePtr> backlog_;               // in order of arrival
  std::vector<std::thread> threads_;
  std::vector<char> has_thread_;
  size_t waiting_ = 0;
  Clock::time_point last_sweep_{};
  bool stopping_ = false;
};

}  // namespace pelton::serve
