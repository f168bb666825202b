// SPDX-License-Identifier: Apache-2.0
#include "serve/core/scheduler.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"

namespace pelton::serve {
namespace {

// Requests that may share an execution: the same inputs with the same shapes but for the first dimension.
bool compatible(const Request& a, const Request& b) {
  if (a.inputs.size() != b.inputs.size()) return false;
  for (const TensorValue& t : a.inputs) {
    const TensorValue* u = b.input(t.name);
    if (!u || t.dtype != u->dtype || t.dims.size() != u->dims.size()) return false;
    if (!std::equal(t.dims.begin() + 1, t.dims.end(), u->dims.begin() + 1)) return false;
  }
  return true;
}

uint64_t ns_between(Clock::time_point a, Clock::time_point b) {
  return b > a ? static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(b - a).count())
               : 0;
}

Error error_from_current_exception(const std::string& model) {
  try {
    throw;
  } catch (const Error& e) {
    return e;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::out_of_memory, "not enough memory to run the request", model);
  } catch (const std::exception& e) {
    return Error(ErrorCode::internal, cat("the engine failed: ", e.what()), model);
  } catch (...) {
    return Error(ErrorCode::internal, "the engine failed with an unknown exception", model);
  }
}

}  // namespace

InstanceScheduler::InstanceScheduler(const ModelConfig& config, std::shared_ptr<Engine> engine,
                                     std::shared_ptr<ModelStats> stats, Limits limits, FinishResponse finish)
    : name_(config.name),
      max_batch_(config.max_batch),
      batching_(config.batching),
      instance_count_(config.instances),
      engine_(std::move(engine)),
      stats_(std::move(stats)),
      finish_(std::move(finish)),
      queue_(config.batching, limits.queue) {
  if (engine_->instant() && !batching_) {
    shared_ = engine_->make_instance(0);
    return;
  }
  for (int i = 0; i < instance_count_; ++i) instances_.push_back(engine_->make_instance(i));
}

InstanceScheduler::~InstanceScheduler() {
  stop();
  for (std::thread& t : threads_) t.join();
}

void InstanceScheduler::stop() {
  std::vector<RequestPtr> left;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    left = queue_.take_all();
  }
  wake_.notify_all();
  for (RequestPtr& r : left) {
    stats_->pending.fetch_sub(1, std::memory_order_relaxed);
    stats_->record_failure(FailReason::rejected, ns_between(r->arrival, Clock::now()));
    r->respond(Error(ErrorCode::busy, "the server is stopping", name_, "retry later"));
  }
}

void InstanceScheduler::submit(RequestPtr request) {
  if (shared_) {
    const auto now = Clock::now();
    request->enqueued = now;
    Batch batch;
    batch.requests.push_back(std::move(request));
    return run(*shared_, std::move(batch));
  }
  std::optional<Error> refused;
  std::vector<RequestQueue::Dropped> dropped;
  std::vector<RequestPtr> stranded;
  {
    std::lock_guard lock(mutex_);
    if (stopping_)
      refused = Error(ErrorCode::busy, "the server is stopping", name_, "retry later");
    else
      refused = queue_.push(request, Clock::now(), dropped);
    if (!refused) {
      stats_->pending.fetch_add(1, std::memory_order_relaxed);
      if (idle_ == 0 && static_cast<int>(threads_.size()) < instance_count_) {
        const int index = static_cast<int>(threads_.size());
        try {
          threads_.emplace_back([this, index] { work(index); });
        } catch (const std::system_error&) {
          if (threads_.empty()) stranded = queue_.take_all();  // without any thread nobody would ever answer
        }
      }
    }
  }
  for (RequestPtr& r : stranded) {
    stats_->pending.fetch_sub(1, std::memory_order_relaxed);
    stats_->record_failure(FailReason::backend, ns_between(r->arrival, Clock::now()));
    r->respond(Error(ErrorCode::out_of_memory, "no thread could be started for the model", name_,
                     "lower the number of instances"));
  }
  if (!refused) wake_.notify_one();
  drop(dropped);
  if (refused) {
    stats_->record_failure(fail_reason(refused->code()), ns_between(request->arrival, Clock::now()));
    request->respond(*refused);
  }
}

size_t InstanceScheduler::plan_batch(Clock::time_point now, Clock::time_point& look_again) const {
  if (!batching_) return 1;
  const int64_t target = batching_->preferred.empty() ? max_batch_ : batching_->preferred.back();
  int64_t rows = 0;
  size_t n = 0, preferred_n = 0;
  bool closed = false;  // nothing that arrives later could join
  while (n < queue_.size() && !closed) {
    const Request& r = queue_.at(n);
    if (n > 0 && (rows + r.rows > max_batch_ || !compatible(queue_.at(0), r))) {
      closed = true;
      break;
    }
    rows += r.rows;
    ++n;
    if (std::binary_search(batching_->preferred.begin(), batching_->preferred.end(), rows)) preferred_n = n;
    closed = rows >= target;
  }
  const auto deadline =
      queue_.oldest() + std::chrono::microseconds(std::min<uint64_t>(batching_->max_delay_us, 3'600'000'000));
  if (stopping_ || now >= deadline) return n;
  if (preferred_n) return preferred_n;
  if (closed) return n;
  look_again = deadline;
  if (auto expiry = queue_.next_expiry()) look_again = std::min(look_again, *expiry);
  return 0;
}

void InstanceScheduler::work(int index) {
  Instance& instance = *instances_[static_cast<size_t>(index)];
  std::vector<RequestQueue::Dropped> dropped;
  std::unique_lock lock(mutex_);
  for (;;) {
    while (queue_.empty() && !stopping_) {
      ++idle_;
      wake_.wait(lock);
      --idle_;
    }
    if (stopping_) return;
    const auto now = Clock::now();
    queue_.expire(now, dropped);
    Batch batch;
    auto look_again = now;
    if (dropped.empty() && !queue_.empty()) {
      if (size_t n = plan_batch(now, look_again)) {
        batch.requests = queue_.take(n, now, dropped);
        if (!batch.requests.empty()) batch.ticket = next_ticket_++;
        stats_->pending.fetch_sub(static_cast<int64_t>(batch.requests.size()), std::memory_order_relaxed);
      } else {
        ++idle_;
        wake_.wait_until(lock, look_again);
        --idle_;
        continue;
      }
    }
    lock.unlock();
    drop(dropped);
    if (!batch.requests.empty()) run(instance, std::move(batch));
    lock.lock();
  }
}

void InstanceScheduler::drop(std::vector<RequestQueue::Dropped>& dropped) {
  for (auto& d : dropped) {
    stats_->pending.fetch_sub(1, std::memory_order_relaxed);
    stats_->record_failure(fail_reason(d.error.code()), ns_between(d.request->arrival, Clock::now()));
    d.request->respond(d.error);
  }
  dropped.clear();
}

void InstanceScheduler::run(Instance& instance, Batch&& batch) {
  BatchRun execution;
  execution.requests = batch.requests;
  execution.responses.resize(batch.requests.size());
  execution.rows = 0;
  const auto start = Clock::now();
  for (const RequestPtr& r : batch.requests) execution.rows += r->rows;
  execution.input_end = execution.infer_end = start;
  try {
    instance.execute(execution);
  } catch (...) {
    const Error error = error_from_current_exception(name_);
    for (Response& r : execution.responses) r.outputs.clear(), r.error = error;
  }
  for (size_t i = 0; i < batch.requests.size(); ++i) {
    Response& response = execution.responses[i];
    if (response.error) continue;
    try {
      finish_(*batch.requests[i], response);
    } catch (...) {
      response.outputs.clear();
      response.error = error_from_current_exception(name_);
    }
  }
  const auto end = Clock::now();
  if (execution.infer_end == start) execution.infer_end = end;
  if (batch.requests[0]->counted)
    stats_->record_execution(static_cast<uint64_t>(execution.rows), ns_between(start, execution.input_end),
                             ns_between(execution.input_end, execution.infer_end),
                             ns_between(execution.infer_end, end));
  for (const RequestPtr& r : batch.requests) {
    r->compute_start = start;
    r->input_end = execution.input_end;
    r->infer_end = execution.infer_end;
    r->compute_end = end;
  }
  batch.responses = std::move(execution.responses);
  if (!batching_ || !batching_->preserve_ordering || instance_count_ == 1) return deliver(std::move(batch));

  std::unique_lock lock(order_mutex_);
  const uint64_t ticket = batch.ticket;
  finished_.emplace(ticket, std::move(batch));
  if (delivering_) return;  // the thread that delivers now takes this one too
  delivering_ = true;
  while (!finished_.empty() && finished_.begin()->first == next_out_) {
    Batch next = std::move(finished_.begin()->second);
    finished_.erase(finished_.begin());
    ++next_out_;
    lock.unlock();
    deliver(std::move(next));
    lock.lock();
  }
  delivering_ = false;
}

void InstanceScheduler::deliver(Batch&& batch) {
  for (size_t i = 0; i < batch.requests.size(); ++i) {
    Request& request = *batch.requests[i];
    Response& response = batch.responses[i];
    const auto now = Clock::now();
    if (!request.counted) {
    } else if (response.error)
      stats_->record_failure(fail_reason(response.error->code()), ns_between(request.arrival, now));
    else
      stats_->record_success(request, now);
    request.respond(std::move(response));
    batch.requests[i].reset();  // frees the inputs before the next answer is written
  }
}

}  // namespace pelton::serve
