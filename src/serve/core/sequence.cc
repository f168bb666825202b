// SPDX-License-Identifier: Apache-2.0
#include "serve/core/sequence.h"

#include <algorithm>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "serve/core/call_graph.h"
#include "serve/core/join.h"

namespace pelton::serve {
namespace {

std::string id_text(const SequenceId& id) {
  return id.text.empty() ? cat(id.number) : cat("'", id.text, "'");
}

constexpr size_t kMaxSlots = 1 << 20;
constexpr auto kAtOnce = Clock::time_point::max();

}  // namespace

SequenceScheduler::SequenceScheduler(const ModelConfig& config, const ModelDir& dir,
                                     std::shared_ptr<Engine> engine, std::shared_ptr<ModelStats> stats,
                                     Limits limits, FinishResponse finish)
    : config_(config),
      sequence_(*config.sequence),
      slots_(sequence_.oldest ? sequence_.max_candidates
                              : static_cast<size_t>(std::max<int64_t>(1, config.max_batch))),
      batch_(static_cast<size_t>(std::max<int64_t>(1, config.max_batch))),
      bound_(limits.queue),
      engine_(std::move(engine)),
      stats_(std::move(stats)),
      runner_(config.name, stats_, nullptr, std::move(finish)) {
  for (const StateSpec& s : sequence_.states) {
    TensorValue t{s.input, s.dtype, s.initial_dims, {}};
    if (config.max_batch > 0) t.dims.insert(t.dims.begin(), 1);
    const auto count = checked_count(t.dims);
    if (!count || *count > kMaxConfigTensor / element_bytes(s.dtype))
      fail(ErrorCode::limit, cat("the initial state '", s.input, "' of shape ", t.dims, " has more than ",
                                 kMaxConfigTensor, " bytes"));
    if (!s.data_file.empty()) {
      t.data = Blob::from(dir.read("initial_state/" + s.data_file, kMaxConfigTensor));
    } else if (s.dtype == DType::string) {
      std::string empty;
      for (int64_t i = 0; i < *count; ++i) append_bytes_element(empty, "");
      t.data = Blob::from(std::move(empty));
    } else {
      const size_t size = static_cast<size_t>(byte_size(s.dtype, *count));
      auto memory = allocate_bytes(size);
      std::memset(memory.get(), 0, size);
      t.data = {memory.get(), size, memory};
    }
    if (s.dtype != DType::string && t.data.size != static_cast<size_t>(byte_size(s.dtype, *count)))
      fail(ErrorCode::bad_shape, cat("initial_state/", s.data_file, " has ", t.data.size,
                                     " bytes, the state '", s.input, "' needs ", byte_size(s.dtype, *count)));
    initial_[s.input] = std::move(t);
  }
  if (sequence_.preserve_ordering && config.instances > 1)
    fail(ErrorCode::unsupported_op,
         cat("field 'sequence_batching.oldest.preserve_ordering' is not supported with ", config.instances,
             " instances"),
         config.name, "use one instance, which answers in order");
  if (slots_ * static_cast<size_t>(config.instances) > kMaxSlots)
    fail(ErrorCode::limit,
         cat("the model asks for ", slots_, " places of sequences in each of ", config.instances,
             " instances, at most ", kMaxSlots, " are allowed in all"),
         config.name, "lower max_batch_size or max_candidate_sequences");
  for (int i = 0; i < config.instances; ++i) instances_.push_back(engine_->make_instance(i));
  places_.assign(instances_.size(), std::vector<SequencePtr>(slots_));
  has_thread_.assign(instances_.size(), 0);
}

SequenceScheduler::~SequenceScheduler() {
  stop();
  for (std::thread& t : threads_) t.join();
}

void SequenceScheduler::stop() {
  Refusals refusals;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    const Error error(ErrorCode::busy, "the server is stopping", config_.name, "retry later");
    for (auto& slots : places_)
      for (auto& s : slots)
        if (s) fail_waiting(*s, error, refusals);
    for (auto& s : backlog_) fail_waiting(*s, error, refusals);
  }
  wake_.notify_all();
  answer(refusals);
}

void SequenceScheduler::submit(RequestPtr request) {
  std::optional<Error> refused;
  Refusals refusals;
  {
    std::lock_guard lock(mutex_);
    refused = accept(request, Clock::now(), refusals);
  }
  if (refused)
    runner_.refuse(std::move(request), *refused);
  else
    wake_.notify_all();
  answer(refusals);
}

std::optional<Error> SequenceScheduler::accept(RequestPtr& r, Clock::time_point now, Refusals& refusals) {
  if (stopping_) return Error(ErrorCode::busy, "the server is stopping", config_.name, "retry later");
  if (r->rows != 1)
    return Error(ErrorCode::bad_shape, cat("a request to the sequence model '", config_.name,
                                           "' has batch size ", r->rows, ", it must be 1"));
  if (!sequence_.iterative && !r->sequence.any())
    return Error(ErrorCode::bad_format, cat("a request to the sequence model '", config_.name,
                                            "' needs a non-zero or non-empty sequence_id"));
  if (const ControlInput* c = sequence_.control(ControlInput::Kind::correlation); c && !sequence_.iterative) {
    // Cut to fit, two ids would be one to the model.
    const bool narrow = c->dtype == DType::u32 || c->dtype == DType::i32;
    if (c->dtype != DType::string && !r->sequence.text.empty())
      return Error(ErrorCode::bad_type, cat("sequence_id ", id_text(r->sequence), " is a text, the model '",
                                            config_.name, "' takes ids of type ", wire_name(c->dtype)));
    if (narrow && r->sequence.number > UINT32_MAX)
      return Error(ErrorCode::limit, cat("sequence_id ", r->sequence.number, " does not fit the type ",
                                         wire_name(c->dtype), " of ids of the model '", config_.name, "'"));
  }
  if (waiting_ >= bound_) sweep(now, refusals);
  if (waiting_ >= bound_)
    return Error(ErrorCode::busy, cat("the queue is full: ", waiting_, " requests wait"), config_.name,
                 "retry later");
  // A sequence stays on its instance, so for a model's own request one held instance is reason enough to
  // refuse.
  if (r->wait)
    if (auto error = r->wait->queued(engine_.get(), 1, config_.name)) return error;
  SequencePtr s;
  SequencePtr before;
  if (!sequence_.iterative) {
    if (auto it = newest_.find(r->sequence); it != newest_.end()) before = it->second;
    if (before && !before->running && before->waiting.empty() && idles(*before, now)) {
      release(before, refusals);
      before = nullptr;
    }
    if (before && !r->sequence_start && !before->closed) s = before;
    if (!s && !r->sequence_start)
      return Error(ErrorCode::bad_format,
                   cat("sequence ", id_text(r->sequence), " of model '", config_.name,
                       "' is not under way: its first request must carry the START flag"));
  }
  if (!s) {
    if (before && !before->closed) {
      before->closed = true;
      if (!before->running && before->waiting.empty()) release(before, refusals);
    }
    s = std::make_shared<Sequence>();
    s->id = r->sequence;
    s->client_inputs = r->inputs.size();
    if (before && !before->gone) s->after = before;
    if (!sequence_.iterative) newest_[s->id] = s;
    place(s);
  }
  if (r->sequence_end || sequence_.iterative) s->closed = true;
  s->last = now;
  r->enqueued = now;
  s->waiting.push_back(std::move(r));
  ++waiting_;
  stats_->pending.fetch_add(1, std::memory_order_relaxed);
  const int i = s->instance;
  if (i >= 0 && !has_thread_[static_cast<size_t>(i)]) {
    try {
      threads_.emplace_back([this, i] { work(i); });
      has_thread_[static_cast<size_t>(i)] = 1;
    } catch (const std::system_error&) {
      fail_waiting(*s,
                   Error(ErrorCode::out_of_memory, "no thread could be started for the model", config_.name),
                   refusals);
      release(s, refusals);
    }
  }
  return std::nullopt;
}

bool SequenceScheduler::idles(const Sequence& s, Clock::time_point now) const {
  return now - s.last >= std::chrono::microseconds(std::min<uint64_t>(sequence_.idle_us, 31'536'000'000'000));
}

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
    const int i = next->instance;
    if (i < 0 || has_thread_[static_cast<size_t>(i)]) continue;
    try {
      threads_.emplace_back([this, i] { work(i); });
      has_thread_[static_cast<size_t>(i)] = 1;
    } catch (const std::system_error&) {
      fail_waiting(*next,
                   Error(ErrorCode::out_of_memory, "no thread could be started for the model", config_.name),
                   refusals);
    }
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
    auto look_again = kAtOnce;
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
      if (look_again == kAtOnce)
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
          Error(ErrorCode::bad_format, cat("sequence ", id_text(s->id), " ended with an earlier error"),
                config_.name, "begin the sequence again"),
          refusals);
    }
    if (turn.ends[i] || (s->closed && s->waiting.empty())) {
      fail_waiting(*s,
                   Error(ErrorCode::bad_format, cat("sequence ", id_text(s->id), " has ended"), config_.name),
                   refusals);
      release(s, refusals);
    }
  }
  wake_.notify_all();
}

void SequenceScheduler::answer(Refusals& refusals) {
  for (Refusal& r : refusals) runner_.refuse(std::move(r.request), r.error);
  refusals.clear();
}

}  // namespace pelton::serve
