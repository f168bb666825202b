// SPDX-License-Identifier: Apache-2.0
#include "serve/core/sequence.h"

#include <algorithm>

#include "base/error.h"
#include "serve/core/call_graph.h"

namespace pelton::serve {
namespace {

constexpr size_t kMaxSlots = 1 << 20;

}  // namespace

std::string to_text(const SequenceId& id) {
  return id.text.empty() ? cat(id.number) : cat("'", id.text, "'");
}

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
  read_initial_states(dir);
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
      return Error(ErrorCode::bad_type, cat("sequence_id ", to_text(r->sequence), " is a text, the model '",
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
                   cat("sequence ", to_text(r->sequence), " of model '", config_.name,
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
  if (!ensure_worker(*s, refusals)) release(s, refusals);
  return std::nullopt;
}

bool SequenceScheduler::idles(const Sequence& s, Clock::time_point now) const {
  return now - s.last >= std::chrono::microseconds(std::min<uint64_t>(sequence_.idle_us, 31'536'000'000'000));
}

void SequenceScheduler::answer(Refusals& refusals) {
  for (Refusal& r : refusals) runner_.refuse(std::move(r.request), r.error);
  refusals.clear();
}

}  // namespace pelton::serve
