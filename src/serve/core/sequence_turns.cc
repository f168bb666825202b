// SPDX-License-Identifier: Apache-2.0
// The executions of sequences: what goes into one, and what becomes of its sequences after it.
#include <algorithm>

#include "base/error.h"
#include "serve/core/call_graph.h"
#include "serve/core/join.h"
#include "serve/core/sequence.h"

namespace pelton::serve {

bool SequenceScheduler::fit_together(const Sequence& a, const Sequence& b) const {
  if (!can_share(config_, *a.waiting.front(), *b.waiting.front())) return false;
  for (const auto& [input, first] : initial_) {  // states may have grown to different shapes
    const TensorValue& x = a.started ? a.states.at(input) : first;
    const TensorValue& y = b.started ? b.states.at(input) : first;
    if (x.dims != y.dims) return false;
  }
  return true;
}

std::vector<SequenceScheduler::SequencePtr> SequenceScheduler::plan(int instance, Clock::time_point now,
                                                                    Clock::time_point& look_again) const {
  std::vector<SequencePtr> ready;
  auto oldest = Clock::time_point::max();
  for (const SequencePtr& s : places_[static_cast<size_t>(instance)])
    if (s && !s->running && !s->waiting.empty()) {
      ready.push_back(s);
      oldest = std::min(oldest, s->waiting.front()->enqueued);
    }
  if (ready.empty()) return ready;
  std::stable_sort(ready.begin(), ready.end(), [](const SequencePtr& a, const SequencePtr& b) {
    return a->waiting.front()->enqueued < b->waiting.front()->enqueued;
  });
  std::vector<SequencePtr> chosen;
  size_t preferred = 0;
  for (const SequencePtr& s : ready) {
    if (chosen.size() == batch_) break;
    if (!chosen.empty() && !fit_together(*chosen[0], *s)) continue;
    chosen.push_back(s);
    if (std::binary_search(sequence_.preferred.begin(), sequence_.preferred.end(),
                           static_cast<int64_t>(chosen.size())))
      preferred = chosen.size();
  }
  const auto deadline =
      oldest + std::chrono::microseconds(std::min<uint64_t>(sequence_.max_delay_us, 3'600'000'000));
  if (stopping_ || now >= deadline || chosen.size() == batch_) return chosen;
  if (sequence_.oldest && preferred) {
    chosen.resize(preferred);
    return chosen;
  }
  if (!sequence_.oldest &&
      static_cast<double>(chosen.size()) >= sequence_.minimum_utilization * static_cast<double>(slots_))
    return chosen;
  look_again = std::min(look_again, deadline);
  return {};
}

SequenceScheduler::Turn SequenceScheduler::take(const std::vector<SequencePtr>& chosen) {
  Turn turn;
  std::vector<SequencePtr> order = chosen;
  const bool fill =
      !sequence_.oldest && !sequence_.iterative && sequence_.control(ControlInput::Kind::ready) && batch_ > 1;
  if (fill) {
    size_t last = 0;
    for (const SequencePtr& s : chosen) last = std::max(last, s->slot);
    order.assign(last + 1, nullptr);
    for (const SequencePtr& s : chosen) order[s->slot] = s;
  }
  for (const SequencePtr& s : order) {
    turn.sequences.push_back(s);
    turn.ends.push_back(0);
    if (!s) {
      turn.batch.requests.push_back(nullptr);
      continue;
    }
    RequestPtr r = std::move(s->waiting.front());
    s->waiting.pop_front();
    --waiting_;
    stats_->pending.fetch_sub(1, std::memory_order_relaxed);
    s->running = true;
    if (r->wait && !engine_->asks()) r->wait->done();
    const bool start = !s->started;
    s->started = true;
    turn.ends.back() = r->sequence_end;
    if (start) s->states = initial_;
    add_controls(*r, s->id, start, r->sequence_end, true);
    for (const StateSpec& spec : sequence_.states) r->inputs.push_back(s->states.at(spec.input));
    turn.batch.requests.push_back(std::move(r));
  }
  const auto& any = *std::find_if(turn.batch.requests.begin(), turn.batch.requests.end(),
                                  [](const RequestPtr& r) { return r != nullptr; });
  for (RequestPtr& r : turn.batch.requests)
    if (!r) r = make_filler(*any);
  return turn;
}

void SequenceScheduler::work(int index) {
  set_priority(config_.optimization.priority);
  Instance& instance = *instances_[static_cast<size_t>(index)];
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopping_) return;
    const auto now = Clock::now();
    Refusals refusals;
    sweep(now, refusals);
    auto look_again = Clock::time_point::max();
    const auto chosen = plan(index, now, look_again);
    if (chosen.empty() && refusals.empty()) {
      // Wakes for the next sequence that idles too long and the next deadline; without sequences not at all.
      for (const auto& slots : places_)
        for (const SequencePtr& s : slots) {
          if (!s || s->running) continue;
          if (s->waiting.empty())
            look_again = std::min(look_again, s->last + std::chrono::microseconds(std::min<uint64_t>(
                                                            sequence_.idle_us, 31'536'000'000'000)));
          for (const RequestPtr& r : s->waiting)
            if (r->deadline) look_again = std::min(look_again, *r->deadline);
        }
      for (const SequencePtr& s : backlog_)
        for (const RequestPtr& r : s->waiting)
          if (r->deadline) look_again = std::min(look_again, *r->deadline);
      if (look_again == Clock::time_point::max())
        wake_.wait(lock);
      else
        wake_.wait_until(lock, look_again);
      continue;
    }
    Turn turn;
    if (!chosen.empty()) turn = take(chosen);
    lock.unlock();
    answer(refusals);
    if (!chosen.empty()) run(instance, turn);
    lock.lock();
    if (!chosen.empty()) put_back(turn, refusals);
    lock.unlock();
    answer(refusals);
    turn = {};  // the sequences' states are freed outside the lock
    lock.lock();
  }
}

void SequenceScheduler::run(Instance& instance, Turn& turn) {
  std::vector<char> broken(turn.sequences.size()), done(turn.sequences.size(), 1);
  runner_.execute(instance, turn.batch, [&](BatchRun& run) {
    keep_states(run, turn);
    for (size_t i = 0; i < turn.sequences.size(); ++i) {
      if (!turn.sequences[i]) continue;
      broken[i] = run.responses[i].error.has_value();
      if (sequence_.iterative && !broken[i] && run.requests[i]) done[i] = is_done(run, i, *turn.sequences[i]);
    }
  });
  for (size_t i = 0; i < turn.sequences.size(); ++i) {
    RequestPtr& r = turn.batch.requests[i];
    if (!turn.sequences[i]) {
      r.reset();  // a filler has nobody to answer
      continue;
    }
    Sequence& s = *turn.sequences[i];
    if (!r || done[i] || broken[i] || turn.batch.responses[i].error) continue;
    if (config_.decoupled) runner_.send_partial(*r, std::move(turn.batch.responses[i]));
    r->inputs.resize(s.client_inputs);
  }
  Batch answers;
  for (size_t i = 0; i < turn.sequences.size(); ++i) {
    if (!turn.sequences[i]) continue;
    const bool finished = done[i] || broken[i] || turn.batch.responses[i].error;
    if (broken[i]) turn.ends[i] = 2;
    if (sequence_.iterative && finished) turn.ends[i] = 2;
    if (!finished || !turn.batch.requests[i]) continue;
    answers.requests.push_back(std::move(turn.batch.requests[i]));
    answers.responses.push_back(std::move(turn.batch.responses[i]));
  }
  runner_.deliver(std::move(answers));
}

// After a run: iterative requests wait again, ended sequences leave.
void SequenceScheduler::put_back(Turn& turn, Refusals& refusals) {
  const auto now = Clock::now();
  for (size_t i = 0; i < turn.sequences.size(); ++i) {
    const SequencePtr& s = turn.sequences[i];
    if (!s) continue;
    s->running = false;
    s->last = now;
    if (RequestPtr& r = turn.batch.requests[i]) {  // iterative, not done
      ++s->steps;
      if (stopping_) {
        refusals.push_back(
            {std::move(r), Error(ErrorCode::busy, "the server is stopping", config_.name, "retry later")});
      } else {
        r->enqueued = now;
        s->waiting.push_front(std::move(r));
        ++waiting_;
        stats_->pending.fetch_add(1, std::memory_order_relaxed);
        continue;
      }
    }
    if (turn.ends[i] == 2) {  // broken: what waits has no state to run on
      s->closed = true;
      fail_waiting(
          *s,
          Error(ErrorCode::bad_format, cat("sequence ", to_text(s->id), " ended with an earlier error"),
                config_.name, "begin the sequence again"),
          refusals);
    }
    if (turn.ends[i] || (s->closed && s->waiting.empty())) {
      fail_waiting(*s,
                   Error(ErrorCode::bad_format, cat("sequence ", to_text(s->id), " has ended"), config_.name),
                   refusals);
      release(s, refusals);
    }
  }
  wake_.notify_all();
}

}  // namespace pelton::serve
